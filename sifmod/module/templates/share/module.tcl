# What a module does when it is loaded, unloaded and shown; the same text in every generation.
#
# It looks for the image and the sources of binds at the load only, and runs no program ever.

# Environment Modules reports an error of this code in one line, and any other with a stack trace.
proc sifmod_fail {message} {
    error $message {} MODULES_ERR_GLOBAL
}

proc sifmod_prefixes {module} {
    if {[dict get $module runtime] eq "apptainer"} {return {SINGULARITY APPTAINER}}
    return SINGULARITY
}

# Every variable of the module that is not a list, with its text.
proc sifmod_variables {module image} {
    set values [dict get $module env]
    foreach prefix [sifmod_prefixes $module] {
        foreach flag [dict get $module flags] {dict set values ${prefix}_$flag 1}
        dict for {name text} [dict get $module env_inside] {dict set values ${prefix}ENV_$name $text}
    }
    foreach name [dict get $module image_variables] {dict set values $name $image}
    return $values
}

proc sifmod_first_file {paths} {
    foreach path $paths {
        if {[file isfile $path]} {return $path}
    }
}

# The bind of the user's own software, in a list: of the places where it may be the first that is there.
proc sifmod_user_software {module} {
    foreach bind [sifmod_or $module {} user_software] {
        if {[file exists [lindex [split $bind :] 0]]} {return [list $bind]}
    }
}

# What is wanted of a module as it is on this machine now; fails when something is missing.
proc sifmod_want {module} {
    if {[regexp {[,:]} [dict get $module root]]} {
        sifmod_fail "[dict get $module root] holds a comma or a colon, which bind paths cannot express;\
            nothing was changed; move the tree"
    }
    set image [sifmod_first_file [dict get $module image]]
    if {$image eq {}} {
        sifmod_fail "the image of [module-info name] is missing; looked for [join [dict get $module image] {, }];\
            nothing was changed; `[dict get $module reinstall]` brings it back"
    }
    set binds {}
    set missing {}
    foreach {bind need} [dict get $module binds] {
        set source [lindex [split $bind :] 0]
        if {[file exists $source]} {lappend binds $bind} elseif {$need eq "required"} {lappend missing $source}
    }
    lappend binds {*}[sifmod_user_software $module]
    if {[llength $missing]} {
        sifmod_fail "[module-info name] needs [join $missing {, }], which this machine does not have; nothing was changed"
    }
    set variables {}
    dict for {name text} [sifmod_variables $module $image] {dict set variables $name [list $text]}
    return [dict create runtime [dict get $module runtime] binds $binds path_inside [dict get $module path_inside] \
        set $variables default [sifmod_or $module {} default_env] generation [dict get $module root]]
}

proc sifmod_load {module} {
    sifmod_environment_load [dict get $module key] [sifmod_want $module]
    prepend-path PATH [dict get $module root]/bin
}

proc sifmod_unload {module} {
    set key [dict get $module key]
    set generation [getenv _SIFMOD_GENERATION_$key [dict get $module root]]
    sifmod_environment_unload $key
    prepend-path PATH $generation/bin
}

proc sifmod_show {module} {
    set image [sifmod_first_file [dict get $module image]]
    if {$image eq {}} {set image [lindex [dict get $module image] 0]}
    set values [sifmod_variables $module $image]
    dict for {name text} [sifmod_or $module {} default_env] {
        if {[sifmod_or [array get ::env] $text $name] eq $text} {dict set values $name [sifmod_or $values $text $name]}
    }
    foreach name [lsort [dict keys $values]] {setenv $name [dict get $values $name]}
    foreach list [sifmod_lists] {
        lassign $list separator field
        set entries [dict get $module $field]
        if {$field eq "binds"} {set entries [concat [dict keys $entries] [sifmod_user_software $module]]}
        foreach name [lrange $list 2 end] - [sifmod_prefixes $module] {
            if {${-} ne {}} {
                foreach entry $entries {append-path -d $separator $name $entry}
            }
        }
    }
    prepend-path PATH [dict get $module root]/bin
}

# Tcl's part of pushenv may change Lmod's own environment, where its other part then takes that for the user's value;
# and Lmod before 8.6.10 does not escape backslashes in the Lua it makes of this.
proc sifmod_push {name text} {
    if {[string first \\ $text] >= 0} {
        sifmod_fail "Lmod reads no Tcl modulefile that sets $name to a value with a backslash: $text"
    }
    set earlier [array get ::env $name]
    pushenv $name $text
    set ::env($name) {}
    unset ::env($name)
    array set ::env $earlier
}

# Lmod can only restore what it has pushed itself: in the order of the loads, and without what was added since.
proc sifmod_lmod {module} {
    set root [dict get $module root]
    set defaults {}
    if {[string first {"} $root] >= 0} {
        sifmod_fail "Lmod reads no Tcl modulefile below a path with quotes: $root"
    }
    if {[module-info mode load]} {
        set want [sifmod_want $module]
        dict for {name text} [dict get $want default] {
            if {![info exists ::env($name)] && ![dict exists $want set $name]} {
                dict set want set $name [list $text]
                lappend defaults $name
            }
        }
    } else {
        set want [dict create binds {} path_inside {} set {}]
        set defaults [sifmod_or [array get ::env] {} _SIFMOD_DEFAULTS_[dict get $module key]]
        foreach name [concat [dict keys [sifmod_variables $module {}]] $defaults] {dict set want set $name {}}
    }
    if {[llength $defaults]} {sifmod_push _SIFMOD_DEFAULTS_[dict get $module key] $defaults}
    sifmod_push _SIFMOD_GENERATION_[dict get $module key] $root
    sifmod_push _SIFMOD_BINDS [join [dict get $want binds] ,]
    dict for {name value} [dict get $want set] {sifmod_push $name [lindex $value 0]}
    foreach list [sifmod_lists] {
        lassign $list separator field
        set entries {}
        foreach name [lrange $list 2 end] {
            if {[info exists ::env($name)]} {lappend entries {*}[sifmod_entries $separator $::env($name)]}
        }
        set entries [sifmod_unique $separator [concat $entries [dict get $want $field]]]
        foreach name [lrange $list 2 end] - [sifmod_prefixes $module] {
            if {${-} ne {}} {sifmod_push $name [join $entries $separator]}
        }
    }
    prepend-path PATH $root/bin
}

proc sifmod_module {args} {
    source [dict get $args root]/share/environment.tcl
    if {[module-info mode display]} {
        sifmod_show $args
    } elseif {([info exists ::ModuleTool] && $::ModuleTool eq "Lmod") || ![llength [info commands getenv]]} {
        sifmod_lmod $args
    } elseif {[module-info mode remove]} {
        sifmod_unload $args
    } else {
        sifmod_load $args
    }
}
