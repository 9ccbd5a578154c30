# Loads, unloads and shows a module; the same text in every generation.
#
# It searches for the image and the sources of binds only at the load, and never runs a program.

# Environment Modules reports an error of this code in one line, and any other with a stack trace.
proc sifmod_fail {message} {
    error $message {} MODULES_ERR_GLOBAL
}

proc sifmod_prefixes {module} {
    if {[dict get $module runtime] eq "apptainer"} {return {SINGULARITY APPTAINER}}
    return SINGULARITY
}

# The key by which wrappers recognise a container, as in launch.sh; the runtime evaluates some characters, so no path has them.
proc sifmod_container {module image} {
    set key {}
    if {![catch {open [dict get $module root]/share/image} file]} {
        gets $file key
        close $file
    }
    if {[regexp {[`$"\\]} $image]} {set image {}}
    return $key:[dict get $module python_key]:$image
}

# Every variable of the module that is not a list, with its text.
proc sifmod_variables {module image} {
    set values [dict get $module env]
    foreach prefix [sifmod_prefixes $module] {
        foreach flag [dict get $module flags] {dict set values ${prefix}_$flag 1}
        dict for {name text} [dict get $module env_inside] {dict set values ${prefix}ENV_$name $text}
        if {[llength [dict get $module image]]} {
            dict set values ${prefix}ENV_SIFMOD_CONTAINER [sifmod_container $module $image]
        }
    }
    foreach name [dict get $module image_variables] {dict set values $name $image}
    return $values
}

proc sifmod_first_file {paths} {
    foreach path $paths {
        if {[file isfile $path]} {return $path}
    }
}

# The bind of the user's own software, in a list: of its squashfs, else of its directory, if there is one.
proc sifmod_user_software {module} {
    foreach bind [sifmod_or $module {} user_software] {
        set type [expr {[string match *:ro,* $bind] ? {isfile} : {isdirectory}}]
        if {[file $type [lindex [split $bind :] 0]]} {return [list $bind]}
    }
}

proc sifmod_on {name} {
    foreach prefix {SINGULARITY_ APPTAINER_} {
        if {[info exists ::env($prefix$name)] && [string tolower $::env($prefix$name)] ni {{} 0 f false}} {return 1}
    }
    return 0
}

# Whether it is a directory of the user's that can be bound.
proc sifmod_is_users {place} {
    return [expr {[regexp {^/[^/]} $place] && ![regexp {[,:\\"]} $place]
        && ![regexp {^/((usr|etc|bin|sbin|boot|dev|proc|sys|run)(/|$)|lib)} $place]
        && [file isdirectory $place] && [file owned $place]}]
}

# Whether the runtime makes mount points that an image lacks; the same as in launch.sh.
proc sifmod_makes_places {module} {
    foreach directory [split [expr {[info exists ::env(PATH)] ? $::env(PATH) : {}}] :] {
        foreach kind [list [dict get $module runtime] singularity] {
            if {![string match /* $directory] || ![file isfile $directory/$kind]} {continue}
            set program [file dirname [file normalize $directory/$kind/x]]
            set top [file dirname [file dirname $program]]
            set name [file tail $program]
            if {[catch {open [expr {$top eq {/usr} ? {} : $top}]/etc/$name/$name.conf} file]} {return 1}
            set text [read $file]
            close $file
            return [expr {![regexp -line {^[ \t]*enable overlay[ \t]*=[ \t]*no\M} $text]
                || ![regexp -line {^[ \t]*enable underlay[ \t]*=[ \t]*no\M} $text]}]
        }
    }
    return 1
}

# The targets of links to the home and scratch directories, and these directories; the same as in launch.sh.
proc sifmod_places_of_user {module} {
    set found {}
    set places {}
    if {[info exists ::env(HOME)]} {lappend places $::env(HOME) 0}
    foreach place [sifmod_or $module {} scratch] {
        lappend places [string map [list {$USER} [expr {[info exists ::env(USER)] ? $::env(USER) : {}}]] $place] 1
    }
    foreach {place itself} $places {
        if {$itself && [sifmod_is_users $place]} {lappend found $place}
        if {![string match /* $place] || [sifmod_on NO_HOME] || [sifmod_on CONTAIN] || [sifmod_on CONTAINALL]} {continue}
        set real [file dirname [file normalize $place/x]]
        regsub -all {/+} $place / plain
        if {$real ne $plain && "$real/" ne $plain && [sifmod_is_users $real]} {lappend found $real}
    }
    if {![llength $found] || ![sifmod_makes_places $module]} {return}
    return $found
}

# The places to search for layers, in order; the same as in launch.sh.
proc sifmod_layer_directories {module} {
    array set have [array get ::env]
    set found {}
    if {[info exists have(SIFMOD_LAYERS)]} {
        foreach directory [split $have(SIFMOD_LAYERS) :] {if {$directory ne {}} {lappend found $directory}}
    }
    foreach name {SIFMOD_PREFIX EBU_USER_PREFIX XDG_DATA_HOME HOME} {
        if {![info exists have($name)]} {set have($name) {}}
    }
    if {$have(SIFMOD_PREFIX) ne {}} {lappend found $have(SIFMOD_PREFIX)/layers}
    set own $have(EBU_USER_PREFIX)
    if {[string match ~/* $own]} {set own $have(HOME)[string range $own 1 end]}
    if {$own eq {} && [string match /* $have(XDG_DATA_HOME)]} {set own $have(XDG_DATA_HOME)}
    if {$own eq {}} {set own $have(HOME)/.local/share}
    lappend found $own/sifmod/layers
    regsub {/software/[^/]+/\.generations/[^/]+/[^/]+$} [dict get $module root] {} prefix
    return [lappend found $prefix/layers]
}

# A directory of SIFMOD_LAYERS that is closed to this user would leave out its packages without a word.
proc sifmod_check_open {directories place} {
    foreach directory $directories {
        if {[string index $directory 0] eq "/" && [catch {file stat $directory/$place status}]
            && [lindex $::errorCode 1] eq "EACCES"} {
            sifmod_fail "[module-info name]: $directory, which SIFMOD_LAYERS names, is closed to you;\
                nothing was changed; ask its owner, or leave it out"
        }
    }
}

# The layer that `sifmod add` has built for this image, else nothing; reports one for another image.
proc sifmod_find_layer {module} {
    set name default
    if {[info exists ::env(SIFMOD_LAYER)]} {set name $::env(SIFMOD_LAYER)}
    if {![dict exists $module layers] || $name eq {}} {return}
    if {[catch {open [dict get $module root]/share/image} file]} {return}
    set key [gets $file]
    close $file
    if {[info exists ::env(SIFMOD_LAYERS)] && [module-info mode load]} {
        sifmod_check_open [split $::env(SIFMOD_LAYERS) :] [dict get $module layers]/$name/$key/live/pylock.toml
    }
    set other {}
    foreach directory [sifmod_layer_directories $module] {
        set place $directory/[dict get $module layers]/$name
        if {[string first , $place] >= 0 || [string index $place 0] ne "/"} {continue}
        if {[file exists $place/$key/live/pylock.toml]} {return $place/$key/live}
        if {[llength [glob -nocomplain -directory $place */live/pylock.toml]]} {set other $place}
    }
    set stale {}
    if {[info exists ::env(SIFMOD_STALE_LAYER)]} {set stale $::env(SIFMOD_STALE_LAYER)}
    if {$stale eq {}} {set stale [expr {[dict exists $module stale_layer] ? [dict get $module stale_layer] : "warn"}]}
    set named [info exists ::env(SIFMOD_LAYER)]
    if {$other ne {} && [module-info mode load] && ($stale ne "quiet" || $named)} {
        if {$stale ni {warn quiet refuse}} {
            sifmod_fail "SIFMOD_STALE_LAYER is $stale: expected warn, quiet or refuse; nothing was changed"
        }
        set full [module-info name]
        set again "`sifmod add $full --onto $full[expr {$name eq "default" ? "" : " --layer $name"}]` makes it for this one"
        set problem "$full: the layer $name was made for another image"
        if {$stale eq "refuse" || $named} {
            sifmod_fail "$problem; nothing was changed; $again"
        }
        puts stderr "$problem, and is not used; $again"
    }
    return {} ;# and not what Environment Modules' puts gives
}

# The same module with its layer, if there is one.
proc sifmod_with_layer {module} {
    set live [sifmod_find_layer $module]
    if {$live eq {}} {return $module}
    set target [dict get $module layer_target]
    if {[file isfile $live/layer.squashfs]} {set bind $live/layer.squashfs:$target:ro,image-src=/} \
        else {set bind $live/tree:$target:ro}
    dict lappend module binds $bind required
    dict set module path_inside [linsert [dict get $module path_inside] 0 $target/bin]
    set python {}
    if {[dict exists $module env_inside PYTHONPATH]} {set python [dict get $module env_inside PYTHONPATH]}
    if {$python ne {}} {set python :$python}
    dict set module env_inside PYTHONPATH $target/start$python
    dict set module env _SIFMOD_LAYER_[dict get $module key] $live
    dict set module layer $live
    return $module
}

# The want of a module on this machine now; fails if something is missing.
proc sifmod_want {module} {
    if {[regexp {[,:]} [dict get $module root]]} {
        sifmod_fail "[dict get $module root] contains a comma or a colon, which bind paths cannot express;\
            nothing was changed; move the tree"
    }
    set image [sifmod_first_file [dict get $module image]]
    if {$image eq {} && [llength [dict get $module image]]} { # a view has none
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
    if {[llength [dict get $module image]]} {lappend binds {*}[sifmod_places_of_user $module]}
    if {[llength $missing]} {
        sifmod_fail "[module-info name] needs [join $missing {, }], which this machine does not have; nothing was changed"
    }
    # if there is one: see sifmod/tree/mark.py
    catch {file mtime [dict get $module root]/share/mark [clock seconds]}
    set variables {}
    dict for {name text} [sifmod_variables $module $image] {dict set variables $name [list $text]}
    return [dict create runtime [dict get $module runtime] binds $binds path_inside [dict get $module path_inside] \
        set $variables default [sifmod_or $module {} default_env] generation [dict get $module root]]
}

proc sifmod_say {text} {
    if {![catch {file readlink /proc/self/fd/2} device] && [regexp {^/dev/(pts/|tty|console)} $device]} {puts stderr $text}
}

# The notices of `sifmod deprecate` and `retire` are read at each load: one per line, the last one whose time has come.
proc sifmod_heed_notice {module} {
    set place {^(.*)/software/([^/]+)/\.generations/([^/]+)/[^/]+$}
    if {![regexp $place [dict get $module root] - prefix name version]} {return}
    if {[catch {open $prefix/life/$name/$version} file]} {return}
    fconfigure $file -encoding utf-8
    set done {}
    while {[gets $file line] >= 0} {
        if {[regexp {^(\d+) (\w+) (.*)$} $line - from what said] && $from <= [clock seconds]} {
            set done $what
            # C1 and characters of writing directions also control a terminal
            regsub -all {[[:cntrl:]\u0080-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]} $said { } text
        }
    }
    close $file
    if {$done eq "refuse"} {sifmod_fail "$text; nothing was changed"}
    if {$done eq "say"} {sifmod_say $text}
}

proc sifmod_warn_of_default {module} {
    if {[dict exists $module warn_without_version] && [module-info specified] ne [module-info name]} {
        sifmod_say "loaded [module-info name], the default; name the version in job scripts"
    }
}

proc sifmod_warn_of_driver {module} {
    lassign [sifmod_or $module {} driver] device why
    if {$device ne {} && [file exists $device]} {
        puts stderr "[module-info name] has $why: expect it to fail on a GPU"
    }
}

# The layer's commands, behind those of the module.
proc sifmod_layer_path {layer} {
    if {$layer ne {}} {prepend-path PATH $layer/bin}
}

# The commands of the generation at this root, which a view does not have.
proc sifmod_commands {module root} {
    if {[llength [dict get $module image]]} {prepend-path PATH $root/bin}
}

proc sifmod_load {module} {
    set module [sifmod_with_layer $module]
    sifmod_environment_load [dict get $module key] [sifmod_want $module]
    sifmod_layer_path [sifmod_or $module {} layer]
    sifmod_commands $module [dict get $module root]
}

proc sifmod_unload {module} {
    set key [dict get $module key]
    set generation [getenv _SIFMOD_GENERATION_$key [dict get $module root]]
    set layer [getenv _SIFMOD_LAYER_$key]
    sifmod_environment_unload $key
    sifmod_layer_path $layer
    sifmod_commands $module $generation
}

proc sifmod_show {module} {
    set module [sifmod_with_layer $module]
    set image [sifmod_first_file [dict get $module image]]
    if {$image eq {}} {set image [lindex [dict get $module image] 0]}
    set values [sifmod_variables $module $image]
    dict for {name text} [sifmod_or $module {} default_env] {
        if {[sifmod_or [array get ::env] $text $name] eq $text} {dict set values $name [sifmod_or $values $text $name]}
    }
    foreach name [lsort [dict keys $values *ENV_SIFMOD_CONTAINER]] {dict unset values $name}
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
    sifmod_layer_path [sifmod_or $module {} layer]
    sifmod_commands $module [dict get $module root]
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
    set layer [sifmod_or [array get ::env] {} _SIFMOD_LAYER_[dict get $module key]]
    if {[module-info mode load]} {
        set module [sifmod_with_layer $module]
        set layer [sifmod_or $module {} layer]
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
        set layered [expr {$layer eq {} ? {} : "_SIFMOD_LAYER_[dict get $module key]"}]
        foreach name [concat [dict keys [sifmod_variables $module {}]] $defaults $layered] {dict set want set $name {}}
    }
    if {[llength $defaults]} {sifmod_push _SIFMOD_DEFAULTS_[dict get $module key] $defaults}
    sifmod_push _SIFMOD_GENERATION_[dict get $module key] $root
    if {[llength [dict get $module image]]} {sifmod_push _SIFMOD_BINDS [join [dict get $want binds] ,]}
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
    sifmod_layer_path $layer
    sifmod_commands $module $root
}

proc sifmod_module {args} {
    source [dict get $args root]/share/environment.tcl
    if {[module-info mode load]} {sifmod_heed_notice $args}
    if {[module-info mode display]} {
        sifmod_show $args
    } elseif {([info exists ::ModuleTool] && $::ModuleTool eq "Lmod") || ![llength [info commands getenv]]} {
        sifmod_lmod $args
    } elseif {[module-info mode remove]} {
        sifmod_unload $args
    } else {
        sifmod_load $args
    }
    if {[module-info mode load]} {
        sifmod_warn_of_default $args
        sifmod_warn_of_driver $args
    }
}
