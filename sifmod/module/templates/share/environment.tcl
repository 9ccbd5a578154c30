# Computes the environment when modules are loaded and unloaded; the same text in every generation.
#
# The rules and the variables are those of environment.lua, which explains them. A value is a list: empty where there is
# no such variable, else the text alone.

proc sifmod_encode {text} {
    if {![regexp {[%;~\x01-\x1f\x7f]} $text]} {return $text}
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
    if {![llength $value]} {
        # when unloading, setenv unsets, and unsetenv sets
        if {[module-info mode remove]} {setenv $name {}} else {unsetenv $name}
    } elseif {[module-info mode remove]} {
        unsetenv $name [string map {\n { }} [lindex $value 0]]
    } else {
        setenv $name [string map {\n { }} [lindex $value 0]]
    }
}

# The value of a dict at some keys, or the default.
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

# The key that two entries of a list must not share: the target of a bind, the directory itself.
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

# The new value of the variable and its twin, each with the entries that are not the user's; and the modules' entries.
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
    foreach key [lsearch -all -inline [dict get $state keys] _VIEW_*] {
        lappend users {*}[dict get $state wants $key $field]
    }
    return [list $values [sifmod_without $all $users]]
}

# The new value of every variable, and the entries of each list that are not the user's.
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
    if {![dict size [dict get $state base]]} {return $state}
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
    set current [dict create]
    foreach name [dict keys $wanted] {
        if {![dict exists $state base $name]} {
            dict set current $name [sifmod_get $name]
            dict set state base $name [dict get $current $name]
            # Environment Modules and Lmod before 8.7.37 let the shell run what follows a line break in a value
            if {[string match *\n* [dict get $current $name]]} {
                sifmod_fail "$name contains a line break, which no module can restore; unset it; nothing was changed"
            }
        }
    }
    dict for {name value} [dict get $state base] {
        if {![dict exists $wanted $name]} {
            dict set values $name $value
            dict unset state base $name
        }
    }
    dict for {name value} [dict merge $values [lindex [sifmod_compute $state] 0]] {
        if {![dict exists $current $name]} {dict set current $name [sifmod_get $name]}
        if {[dict get $current $name] ne $value} {sifmod_set $name $value}
    }
}

proc sifmod_remove {state key} {
    dict set state keys [lsearch -all -inline -exact -not [dict get $state keys] $key]
    dict unset state wants $key
    return $state
}

# A want with its defaults for variables that neither the user, another module nor itself sets.
proc sifmod_with_defaults {state want} {
    dict for {name text} [sifmod_or $want {} default] {
        set values [sifmod_or $state [sifmod_get $name] base $name]
        foreach other [concat [list $want] [dict values [dict get $state wants]]] {
            lappend values {*}[sifmod_or $other {} set $name]
        }
        if {![llength $values]} {dict set want set $name [list $text]}
    }
    return $want
}

# Load what a module wants, or fail before anything is changed.
proc sifmod_environment_load {key want} {
    set state [sifmod_read_state]
    if {[dict get $state unknown] ne {}} {
        sifmod_fail "[dict get $state unknown] was loaded by another version of sifmod; unload it first; nothing was changed"
    }
    set state [sifmod_remove [sifmod_respect_changes $state] $key]
    set want [sifmod_with_defaults $state $want]
    dict lappend state keys $key
    dict set state wants $key $want
    sifmod_apply $state {}
}

proc sifmod_environment_unload {key} {
    set state [sifmod_remove [sifmod_respect_changes [sifmod_read_state]] $key]
    sifmod_apply $state [dict create _SIFMOD_GENERATION_$key {} _SIFMOD_WANT_$key {}]
}
