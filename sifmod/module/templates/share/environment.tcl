# What loading and unloading a module does to the environment; the same text in every generation.
#
# The rules and the variables are those of environment.lua, which explains them. A value is a list: empty where there is
# no such variable, else the text alone. Lmod reads a Tcl modulefile by translating it, and offers less: see sifmod_lmod.

proc sifmod_encode {text} {
    set map {}
    foreach sign [lsort -unique [regexp -all -inline {[%;~\x01-\x1f\x7f]} $text]] {
        lappend map $sign [format %%%02X [scan $sign %c]]
    }
    return [string map $map $text]
}

proc sifmod_decode {text} {
    set map {}
    foreach code [lsort -unique [regexp -all -inline {%[0-9A-F]{2}} $text]] {
        lappend map $code [format %c [scan $code %%%x]]
    }
    return [string map $map $text]
}

proc sifmod_get {name} {
    set text [getenv $name \x01]
    if {$text eq "\x01"} {return {}}
    return [list $text]
}

proc sifmod_set {name value} {
    if {[sifmod_get $name] eq $value} {
        return
    } elseif {![llength $value]} {
        # when unloading, setenv unsets, and unsetenv sets
        if {[module-info mode remove]} {setenv $name {}} else {unsetenv $name}
    } elseif {[module-info mode remove]} {
        unsetenv $name [string map {\n { }} [lindex $value 0]]
    } else {
        setenv $name [string map {\n { }} [lindex $value 0]]
    }
}

# The value of a dict at some keys, or what stands for none.
proc sifmod_or {values none args} {
    if {[dict exists $values {*}$args]} {return [dict get $values {*}$args]}
    return $none
}

proc sifmod_normal {entry} {
    return [regsub -all {([^:,])/(?=[:,])} [regsub -all {/+} "$entry:" /] {\1}]
}

proc sifmod_entries {separator text} {
    set entries {}
    foreach part [split $text $separator] {
        set last [lindex $entries end]
        set option [regexp {^(ro|rw|image-src=.*|id=.*)$} $part]
        if {$separator eq "," && [llength $entries] && ($option || [string index $last end] eq "\\")} {
            lset entries end $last,$part
        } elseif {$part ne {}} {
            lappend entries $part
        }
    }
    return $entries
}

# What two entries of a list may not both have: the target of a bind, the directory itself.
proc sifmod_key {separator entry} {
    if {$separator eq ","} {
        lassign [split [string map {\\: \\;} $entry] :] source target
        if {$target ne {}} {set entry $target} else {set entry $source}
    }
    return [sifmod_normal $entry]
}

proc sifmod_unique {separator entries} {
    set all {}
    foreach entry $entries {
        set key [sifmod_key $separator $entry]
        if {![info exists seen($key)]} {
            set seen($key) 1
            lappend all $entry
        }
    }
    return $all
}

proc sifmod_without {entries others} {
    set rest {}
    foreach entry $others {incr count([sifmod_normal $entry])}
    foreach entry $entries {
        set key [sifmod_normal $entry]
        if {[info exists count($key)] && $count($key) > 0} {incr count($key) -1} else {lappend rest $entry}
    }
    return $rest
}

# separator, the field of a want, the names of the variable and its twin
proc sifmod_lists {} {
    return {
        {, binds SINGULARITY_BINDPATH APPTAINER_BINDPATH}
        {: path_inside SINGULARITYENV_PREPEND_PATH APPTAINERENV_PREPEND_PATH}
    }
}

proc sifmod_read_pairs {fields} {
    set values [dict create]
    foreach field $fields {
        if {[regexp {^([^=]*)=(.*)$} $field - name value]} {
            dict set values $name [list [sifmod_decode $value]]
        } else {
            dict set values $field {}
        }
    }
    return $values
}

proc sifmod_write_pairs {fields values} {
    foreach name [lsort [dict keys $values]] {
        set value [dict get $values $name]
        if {[llength $value]} {append name =[sifmod_encode [lindex $value 0]]}
        lappend fields $name
    }
    return [join $fields {;}]
}

proc sifmod_read_state {} {
    set state [dict create keys {} wants {} base {} unknown {}]
    dict set state base [sifmod_read_pairs [lrange [split [getenv _SIFMOD_BASE 1] {;}] 1 end]]
    foreach key [sifmod_entries : [getenv _SIFMOD_LOADED {}]] {
        set fields [split [getenv _SIFMOD_WANT_$key {}] {;}]
        if {[lindex $fields 0] ne "1"} {
            dict set state unknown $key
            continue
        }
        dict lappend state keys $key
        dict set state wants $key [dict create runtime [lindex $fields 1] \
            binds [sifmod_entries , [sifmod_decode [lindex $fields 2]]] \
            path_inside [sifmod_entries : [sifmod_decode [lindex $fields 3]]] \
            set [sifmod_read_pairs [lrange $fields 4 end]] generation [getenv _SIFMOD_GENERATION_$key {}]]
    }
    return $state
}

proc sifmod_list_is_wanted {field state} {
    foreach want [dict values [dict get $state wants]] {
        if {[llength [dict get $want $field]]} {return 1}
    }
    return 0
}

# The variable and its twin as they are to be, each with the entries that are not its user's; and the modules' entries.
proc sifmod_list_values {list state} {
    lassign $list separator field
    set wanted {}
    set count 1
    foreach key [lreverse [dict get $state keys]] {
        set want [dict get $state wants $key]
        lappend wanted {*}[dict get $want $field]
        if {[dict get $want runtime] eq "apptainer"} {set count 2}
    }
    set own {}
    foreach name [lrange $list 2 3] {
        set text [lindex [sifmod_or $state {} base $name] 0]
        lappend own [sifmod_unique $separator [sifmod_entries $separator $text]]
    }
    set users [sifmod_unique $separator [concat {*}$own]]
    set all [sifmod_unique $separator [concat $users $wanted]]
    set values {}
    foreach name [lrange $list 2 [expr {1 + $count}]] entries [lrange $own 0 [expr {$count - 1}]] {
        dict set values $name [list [list [join $all $separator]] [sifmod_without $all $entries]]
    }
    return [list $values [sifmod_without $all $users]]
}

# Every variable as it is to be, and which entries of each list are not its user's.
proc sifmod_compute {state} {
    set values [dict get $state base]
    set added {}
    set binds {}
    foreach key [dict get $state keys] {
        set want [dict get $state wants $key]
        set values [dict merge $values [dict get $want set]]
        dict set values _SIFMOD_GENERATION_$key [list [dict get $want generation]]
        set fields [list 1 [dict get $want runtime] [sifmod_encode [join [dict get $want binds] ,]] \
            [sifmod_encode [join [dict get $want path_inside] :]]]
        dict set values _SIFMOD_WANT_$key [list [sifmod_write_pairs $fields [dict get $want set]]]
    }
    foreach list [sifmod_lists] {
        if {[sifmod_list_is_wanted [lindex $list 1] $state]} {
            lassign [sifmod_list_values $list $state] both modules
            dict for {name pair} $both {
                dict set values $name [lindex $pair 0]
                dict set added $name [lindex $pair 1]
            }
            if {[lindex $list 1] eq "binds"} {set binds $modules}
        }
    }
    dict set values _SIFMOD_LOADED [list [join [dict get $state keys] :]]
    dict set values _SIFMOD_BINDS [list [join $binds ,]]
    dict set values _SIFMOD_BASE [list [sifmod_write_pairs 1 [dict get $state base]]]
    if {![llength [dict get $state keys]]} {
        foreach name {_SIFMOD_LOADED _SIFMOD_BINDS _SIFMOD_BASE} {dict set values $name {}}
    }
    return [list $values $added]
}

proc sifmod_respect_changes {state} {
    lassign [sifmod_compute $state] values added
    foreach list [sifmod_lists] {
        set separator [lindex $list 0]
        foreach name [lrange $list 2 3] {
            set value [sifmod_get $name]
            if {[dict exists $state base $name] && $value ne [dict get $values $name]} {
                set rest [sifmod_without [sifmod_entries $separator [lindex $value 0]] \
                    [sifmod_or $added {} $name]]
                set before [sifmod_entries $separator [lindex [dict get $state base $name] 0]]
                set before [sifmod_unique $separator $before]
                if {[lindex $value 0] eq {} || ![dict exists $added $name]} {
                    dict set state base $name $value
                } elseif {[llength $rest] != [llength $before] || [llength [sifmod_without $rest $before]]} {
                    dict set state base $name [list [join $rest $separator]]
                }
            }
            dict unset values $name
        }
    }
    dict for {name value} $values {
        if {[dict exists $state base $name] && [sifmod_get $name] ne $value} {
            dict unset state base $name
            foreach key [dict get $state keys] {dict unset state wants $key set $name}
        }
    }
    return $state
}

proc sifmod_apply {state values} {
    set wanted [dict create]
    foreach want [dict values [dict get $state wants]] {
        foreach name [dict keys [dict get $want set]] {dict set wanted $name 1}
    }
    foreach list [sifmod_lists] {
        if {[sifmod_list_is_wanted [lindex $list 1] $state]} {
            foreach name [lrange $list 2 3] {dict set wanted $name 1}
        }
    }
    foreach name [dict keys $wanted] {
        if {![dict exists $state base $name]} {dict set state base $name [sifmod_get $name]}
    }
    dict for {name value} [dict get $state base] {
        if {![dict exists $wanted $name]} {
            dict set values $name $value
            dict unset state base $name
        }
    }
    dict for {name value} [dict merge $values [lindex [sifmod_compute $state] 0]] {sifmod_set $name $value}
}

proc sifmod_remove {state key} {
    dict set state keys [lsearch -all -inline -exact -not [dict get $state keys] $key]
    dict unset state wants $key
    return $state
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

# What is wanted of a module as it is on this machine now; the text of what is missing is thrown.
proc sifmod_want {module} {
    set image [sifmod_first_file [dict get $module image]]
    if {$image eq {}} {
        error "the image of [module-info name] is missing; looked for [join [dict get $module image] {, }];\
            nothing was changed; `[dict get $module reinstall]` brings it back"
    }
    set binds {}
    set missing {}
    foreach {bind need} [dict get $module binds] {
        set source [lindex [split $bind :] 0]
        if {[file exists $source]} {lappend binds $bind} elseif {$need eq "required"} {lappend missing $source}
    }
    if {[llength $missing]} {
        error "[module-info name] needs [join $missing {, }], which this machine does not have; nothing was changed"
    }
    set variables {}
    dict for {name text} [sifmod_variables $module $image] {dict set variables $name [list $text]}
    return [dict create runtime [dict get $module runtime] binds $binds path_inside [dict get $module path_inside] \
        set $variables generation [dict get $module root]]
}

proc sifmod_load {module} {
    set want [sifmod_want $module]
    set key [dict get $module key]
    set state [sifmod_read_state]
    if {[dict get $state unknown] ne {}} {
        error "[dict get $state unknown] was loaded by another version of sifmod; unload it first; nothing was changed"
    }
    foreach name [concat [dict keys [dict get $want set]] [lrange [lindex [sifmod_lists] 0] 2 3] \
        [lrange [lindex [sifmod_lists] 1] 2 3]] {
        if {[string first \n [getenv $name {}]] >= 0} {
            error "$name holds a line break, which no module can give back; unset it; nothing was changed"
        }
    }
    set state [sifmod_remove [sifmod_respect_changes $state] $key]
    dict lappend state keys $key
    dict set state wants $key $want
    sifmod_apply $state {}
    prepend-path PATH [dict get $module root]/bin
}

proc sifmod_unload {module} {
    set key [dict get $module key]
    set generation [getenv _SIFMOD_GENERATION_$key [dict get $module root]]
    set state [sifmod_remove [sifmod_respect_changes [sifmod_read_state]] $key]
    sifmod_apply $state [dict create _SIFMOD_GENERATION_$key {} _SIFMOD_WANT_$key {}]
    prepend-path PATH $generation/bin
}

proc sifmod_show {module} {
    set image [sifmod_first_file [dict get $module image]]
    if {$image eq {}} {set image [lindex [dict get $module image] 0]}
    set values [sifmod_variables $module $image]
    foreach name [lsort [dict keys $values]] {setenv $name [dict get $values $name]}
    foreach list [sifmod_lists] {
        lassign $list separator field
        set entries [dict get $module $field]
        if {$field eq "binds"} {set entries [dict keys $entries]}
        foreach name [lrange $list 2 end] - [sifmod_prefixes $module] {
            if {${-} ne {}} {
                foreach entry $entries {append-path -d $separator $name $entry}
            }
        }
    }
    prepend-path PATH [dict get $module root]/bin
}

# Tcl's part of pushenv may change Lmod's own environment, where its other part then takes that for the user's value.
proc sifmod_push {name text} {
    set earlier [array get ::env $name]
    pushenv $name $text
    set ::env($name) {}
    unset ::env($name)
    array set ::env $earlier
}

# Lmod can only restore what it has pushed itself: in the order of the loads, and without what was added since.
proc sifmod_lmod {module} {
    set root [dict get $module root]
    if {[regexp {["\\]} $root]} {
        error "Lmod reads no Tcl modulefile below a path with quotes or backslashes: $root"
    }
    if {[module-info mode load]} {
        set want [sifmod_want $module]
    } else {
        set want [dict create binds {} path_inside {} set {}]
        foreach name [dict keys [sifmod_variables $module {}]] {dict set want set $name {}}
    }
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
    if {[module-info mode display]} {
        sifmod_show $args
    } elseif {([info exists ::ModuleTool] && $::ModuleTool eq "Lmod") || ![llength [info commands getenv]]} {
        sifmod_lmod $args
    } elseif {[module-info mode remove]} {
        sifmod_unload $args
    } elseif {[catch {sifmod_load $args} problem]} {
        puts stderr $problem
        return -code break
    }
}
