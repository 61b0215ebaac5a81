#!/bin/sh
# Installs a package of Rondpoint, runs its service, upgrades and removes it, as root under systemd:
#
#     packaging/lifecycle.sh rondpoint_0.1.0_amd64.deb [PART…]
#
# For a Debian without Rondpoint that may be thrown away: it writes the configuration and purges the
# package. It prints a line for each check, `ok WHAT` or `FAILED WHAT: FOUND`, and ends with status 1
# where one failed. `./x test` runs it in a guest of the lab. The part `placed` needs two memory nodes
# and the lab's workloads as /usr/local/bin/jam; without them it prints `not tried`.
set -u
export LC_ALL=C PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
package=$1
unit=rondpoint.service
work=$(mktemp -d)
failed=0

# CAP_SYS_PTRACE (19), CAP_SYS_NICE (23) and CAP_PERFMON (38), and the same without CAP_SYS_NICE.
acts=0000004000880000
observes=0000004000080000
# Users that have no account and no privilege: one has the busy program, one has nothing.
owner=64001
stranger=64002
# A program of one memory node whose threads run on all.
jam=/usr/local/bin/jam
# What `configure` writes.
policies='"shuffle"'

# check WHAT COMMAND…: a line for a command that must succeed; what it prints is shown if it fails.
check() {
    what=$1
    shift
    if found=$("$@" 2>&1); then
        echo "ok $what"
    else
        failed=1
        echo "FAILED $what: $(echo "$found" | tail -n 12 | tr '\n' ' ')"
    fi
}

# comes SECONDS COMMAND…: whether the command succeeds before the time is over.
comes() {
    left=$(($1 * 5))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.2
    done
}

not() { ! "$@"; }
property() { systemctl show --property="$1" --value "${2:-$unit}"; }
is() { echo "expected $2, found $1" && [ "$1" = "$2" ]; }
is_active() { is "$(property ActiveState)" "$1"; }
main_pid() { property MainPID; }
of_main() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(main_pid)/status"; }
# as USER COMMAND…: with no privilege and no group but its own.
as() {
    user=$1
    shift
    setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
}
cpus_of() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
is_narrow() { kill -0 "$busy" && [ "$(cpus_of "$busy")" != "$all" ]; }
is_wide() { is "$(cpus_of "$busy")" "$all"; }
state_of() { rondpoint status --json | tr -d ' \n' | grep -o "\"pid\":$1,[^{}]*\"state\":\"[a-z]*\"" | sed 's/.*"state":"//; s/"//'; }
why_of() { rondpoint status --json | tr -d '\n' | grep -o "\"pid\": *$1,[^{}]*"; }
is_managed() { is "$(state_of "$busy")" managed || { why_of "$busy"; false; }; }
is_left() { is "$(state_of "$busy")" left; }
journal() { journalctl --unit=$unit --no-pager --boot "$@"; }
no_ledger() { is "$(ls /run/rondpoint 2>/dev/null | grep -c ledger)" 0; }

# configure MODE [LINE…]: manages whatever is busy, by `policies`. shuffle needs no second node.
configure() {
    mode=$1
    shift
    {
        printf 'mode = "%s"\n[manage]\nmin_memory_mib = 0\nmin_cpus = 0.3\nlook_every_s = 0.5\n' "$mode"
        printf '[policy]\npolicies = [%s]\n' "$policies"
        printf '%s\n' "$@"
    } > /etc/rondpoint/rondpoint.toml
}

installed() {
    check "dpkg installs the package" dpkg --install "$package"
    check "the files are those of the package" is "$(dpkg --verify rondpoint)" ""
    check "the service does not run unasked" is_active inactive
    check "the service does not start at boot unasked" is "$(systemctl is-enabled $unit)" disabled
    check "its user cannot log in" is "$(getent passwd rondpoint | cut -d: -f7)" /usr/sbin/nologin
    check "the configuration observes only" grep -q '^mode = "observe"' /etc/rondpoint/rondpoint.toml
    check "systemd has nothing to say against the unit" is "$(systemd-analyze verify --man=no $unit 2>&1)" ""
    # 20 stands for 2.0.
    check "systemd-analyze security: at most 2.0" systemd-analyze security --offline=true \
        --no-pager --threshold=20 /usr/lib/systemd/system/$unit
}

observed() {
    check "the service starts, and says when it is ready" systemctl enable --now $unit
    check "the service runs" is_active active
    check "while it observes it holds two capabilities" is "$(of_main CapEff)" $observes
    check "systemctl status shows the daemon's own line" not is "$(property StatusText)" ""
}

started() {
    configure act
    check "a start with another configuration" systemctl restart $unit
    check "the daemon manages a busy program" comes 30 is_managed
    # Debian's own level is 3.
    if [ "$(cat /proc/sys/kernel/perf_event_paranoid)" -gt 2 ]; then
        check "the status says that the kernel refuses to count, and what helps" sh -c \
            "rondpoint status | grep -q 'sudo sysctl kernel.perf_event_paranoid=2'"
    fi
    mkdir -p /etc/sysctl.d
    cp /usr/share/doc/rondpoint/rondpoint-perf.conf /etc/sysctl.d/
    check "systemd applies the setting of the package" systemctl restart systemd-sysctl.service
    check "a start with that setting" systemctl restart $unit
    check "the kernel lets the daemon count" not sh -c \
        "rondpoint status | grep -q 'refuses performance events'"
    check "the daemon gives its thread another mask" comes 30 is_narrow
    check "root manages a program beside the daemon" rondpoint run -- true
    check "root's restore finds nothing left" rondpoint restore
}

confined() {
    pid=$(main_pid)
    id=$(id -u rondpoint)
    check "the daemon has its own user only" is "$(of_main Uid | tr '\t' ' ')" "$id $id $id $id"
    for set in CapEff CapPrm CapBnd; do
        check "while it acts it holds three capabilities ($set)" is "$(of_main $set)" $acts
    done
    check "no_new_privs is set" is "$(of_main NoNewPrivs)" 1
    check "a seccomp filter is set" is "$(of_main Seccomp)" 2
    touch "$work/seen"
    check "the daemon does not see files in /tmp" not test -e "/proc/$pid/root$work/seen"
    for folder in /usr /etc /var; do
        check "the daemon cannot write to $folder" not touch "/proc/$pid/root$folder/written"
    done
    check "the daemon can write to its runtime folder" touch /proc/"$pid"/root/run/rondpoint/written
    rm -f /run/rondpoint/written
    check "the daemon sees no home" is "$(ls -A /proc/"$pid"/root/root 2>/dev/null)" ""
    check "the daemon sees no device" not test -e "/proc/$pid/root/dev/ttyS0"
    check "its memory is limited" is "$(property MemoryMax)" $((512 << 20))
}

logged() {
    check "the journal has the daemon's lines" sh -c "journalctl --unit=$unit --output=cat | grep -q ready"
    check "a line has its fields" sh -c "journalctl --unit=$unit --output=verbose | grep -q '^ *F_ACTS=true'"
    check "a line has its priority" sh -c "journalctl --unit=$unit --output=verbose | grep -q '^ *PRIORITY=[56]'"
}

asked() {
    check "root sees the program in the status" comes 10 is_managed
    check "its owner sees it" sh -c "setpriv --reuid=$owner --regid=$owner --clear-groups rondpoint status --json | tr -d ' ' | grep -q '\"pid\":$busy,'"
    check "another user gets the status of the machine" as $stranger rondpoint status
    check "another user does not see it" not sh -c "setpriv --reuid=$stranger --regid=$stranger --clear-groups rondpoint status --json | tr -d ' ' | grep -q '\"pid\":$busy,'"
    check "another user may not pause the daemon" not as $stranger rondpoint pause
    check "the refusal is in the journal" sh -c "journalctl --unit=$unit --output=verbose | grep -q F_USER=$stranger"
    check "a member of the group may pause it" setpriv --reuid=$stranger --regid=$stranger \
        --groups="$(getent group rondpoint | cut -d: -f3)" rondpoint pause
    check "while it pauses, masks are as before" comes 10 is_wide
    check "root lets it go on" rondpoint resume
}

reloaded() {
    before=$(main_pid)
    configure act '[exclude]' "users = [$owner]"
    check "systemctl reload" systemctl reload $unit
    check "a program that is excluded now is left" comes 20 is_left
    check "a program that is excluded now has its mask as before" comes 10 is_wide
    configure act
    kill -HUP "$before"
    check "SIGHUP reads the configuration too" comes 20 is_managed
    echo 'min_cpu = 3' >> /etc/rondpoint/rondpoint.toml
    check "a reload with a mistake fails" not systemctl reload $unit
    check "a reload with a mistake changes nothing" comes 10 is_managed
    configure act
    check "the daemon is the same process still" is "$(main_pid)" "$before"
}

watched() {
    mkdir -p /etc/systemd/system/$unit.d
    printf '[Service]\nWatchdogSec=4\n' > /etc/systemd/system/$unit.d/watchdog.conf
    systemctl daemon-reload
    check "a start with a watchdog of 4 s" systemctl restart $unit
    told=$(property WatchdogTimestampMonotonic)
    told_again() { [ "$(property WatchdogTimestampMonotonic)" != "$told" ]; }
    check "the daemon tells the watchdog that it lives" comes 4 told_again
    comes 30 is_narrow
    before=$(main_pid)
    kill -STOP "$before"
    is_another() { [ "$(main_pid)" != "$before" ] && [ "$(main_pid)" != 0 ]; }
    check "a daemon that hangs is ended and started anew" comes 30 is_another
    check "systemd names the watchdog" sh -c "journalctl --unit=$unit | grep -q 'Watchdog timeout'"
    rm -r /etc/systemd/system/$unit.d
    systemctl daemon-reload
    systemctl reset-failed $unit
    systemctl restart $unit
}

killed() {
    check "before SIGKILL a thread has another mask" comes 30 is_narrow
    before=$(main_pid)
    kill -KILL "$before"
    # The unit waits five seconds before it starts the daemon anew.
    check "after SIGKILL masks are as before" comes 4 is_wide
    check "after SIGKILL no ledger is left" comes 4 no_ledger
    is_another() { [ "$(main_pid)" != "$before" ] && [ "$(main_pid)" != 0 ]; }
    check "systemd starts the daemon anew" comes 20 is_another
    check "it manages the program again" comes 30 is_managed
}

# The value of a metric of the tree of the jammed program, a whole number.
of_jam() { rondpoint status --metrics | sed -n "s/^rondpoint_tree_$1{.*command=\"jam\"} \\([0-9]*\\).*/\\1/p"; }
has_moved() {
    moved=$(of_jam moved_bytes_total)
    [ "${moved:-0}" -ge $((100 * 4096)) ]
}
# Pages that were moved by others than the kernel's NUMA balancing.
migrated() { awk '/^pgmigrate_success / { all = $2 } /^numa_pages_migrated / { own = $2 } END { print all - own }' /proc/vmstat; }
# Whether that were 100 pages since `before`, and what the daemon says that it moved. A tenth less is
# enough: a page that balancing moves meanwhile is counted twice.
kernel_has_moved() {
    said=$(of_jam moved_bytes_total)
    said=$((${said:-0} / 4096))
    found=$(($(migrated) - before))
    echo "expected 100 pages and nine tenths of $said, found $found"
    [ $found -ge 100 ] && [ $((10 * found)) -ge $((9 * said)) ]
}
masks_of_jam() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/"$jammed"/task/*/status | sort -u; }
jam_is_narrow() { kill -0 "$jammed" && [ "$(masks_of_jam)" != "$all" ]; }
jam_is_wide() { is "$(masks_of_jam)" "$all"; }
# Why nothing is moved, for a check that failed.
jam_moves() {
    comes 30 has_moved || {
        why_of "$jammed"
        rondpoint status | head -n 4
        journal --lines=6 --output=cat
        false
    }
}

# The guest has no counters: the daemon sees by the faults of the kernel's NUMA balancing. `auto` would
# leave the pages to that balancing, carrefour:final does not.
placed() {
    if [ ! -x $jam ] || [ ! -d /sys/devices/system/node/node1 ]; then
        echo "not tried: placed, without $jam or a second memory node"
        return
    fi
    # So that the program begins with the mask of this script, whatever the daemon made of that.
    systemctl stop $unit
    echo 1 > /proc/sys/kernel/numa_balancing
    setpriv --reuid=$owner --regid=$owner --clear-groups $jam kmeans --rotate --no-huge-pages \
        --size 32M --centres 1 --seconds 600 > /dev/null &
    jammed=$!
    before=$(migrated)
    policies='"carrefour:final"'
    configure act
    check "a start with a policy for pages" systemctl start $unit
    check "the packaged daemon moves pages of a jammed program of another user" jam_moves
    check "the kernel has moved as many pages without its own balancing" kernel_has_moved
    check "its owner may ask what was done" as $owner rondpoint explain "$jammed"
    check "another user may not ask that" not as $stranger rondpoint explain "$jammed"
    policies='"shuffle"'
    configure act
    check "a reload with a policy for threads" systemctl reload $unit
    check "the packaged daemon gives a thread of the program another mask" comes 30 jam_is_narrow
    check "the service stops while its program is placed" systemctl stop $unit
    check "after the stop each thread of the program has its mask as before" jam_is_wide
    check "after the stop no ledger of the program is left" no_ledger
    check "the program runs on" kill -0 "$jammed"
    kill "$jammed"
    wait "$jammed" 2> /dev/null
    systemctl start $unit
}

# metrics: what a client of HTTP gets.
metrics() {
    bash -c 'exec 3<>/dev/tcp/127.0.0.1/9842 && printf "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" >&3 && timeout 5 cat <&3'
}

measured() {
    configure act '[metrics]' 'listen = "127.0.0.1:9842"'
    check "without the drop-in no port is opened" not systemctl restart $unit
    systemctl reset-failed $unit
    mkdir -p /etc/systemd/system/$unit.d
    cp /usr/share/doc/rondpoint/rondpoint-metrics.conf /etc/systemd/system/$unit.d/
    systemctl daemon-reload
    check "with the drop-in of the package the service starts" systemctl restart $unit
    check "the port gives metrics" sh -c "$0 metrics | grep -q ^rondpoint_"
    rm -r /etc/systemd/system/$unit.d
    configure act
    systemctl daemon-reload
    systemctl restart $unit
}

# The next version of the package, whose unit says so too.
next_version() {
    dpkg-deb --raw-extract "$package" "$work/next"
    sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
    sed -i 's/^Description=.*/& (next)/' "$work/next/usr/lib/systemd/system/$unit"
    sed -i '/lib.systemd.system/d' "$work/next/DEBIAN/md5sums"
    dpkg-deb --root-owner-group -Znone --build "$work/next" "$work/next.deb"
}

upgraded() {
    check "a next version is made" next_version
    cp /etc/rondpoint/rondpoint.toml "$work/edited"
    before=$(main_pid)
    check "dpkg upgrades it without a question" dpkg --install "$work/next.deb"
    check "the version is the next one" sh -c "dpkg-query --show rondpoint | grep -q '+next\$'"
    check "an edited configuration stays" cmp "$work/edited" /etc/rondpoint/rondpoint.toml
    check "the service runs" is_active active
    check "the service is the new one" not is "$(main_pid)" "$before"
    check "systemd has the new unit" sh -c "systemctl show --property=Description $unit | grep -q '(next)\$'"
    check "it manages the program again" comes 30 is_managed
    check "before a stop a thread has another mask" comes 30 is_narrow
    check "the service stops" systemctl stop $unit
    check "it stopped without a failure" is_active inactive
    check "after the stop masks are as before" is_wide
    check "after the stop no ledger is left" no_ledger
    check "dpkg goes back to the version before" dpkg --install --force-downgrade "$package"
    check "a service that was stopped stays so" is_active inactive
}

removed() {
    systemctl start $unit
    check "before the removal a thread has another mask" comes 30 is_narrow
    before=$(main_pid)
    check "dpkg removes the package" dpkg --remove rondpoint
    check "the daemon has ended" not test -e "/proc/$before"
    check "after the removal masks are as before" is_wide
    check "the busy program still runs" kill -0 "$busy"
    check "the configuration stays" cmp "$work/edited" /etc/rondpoint/rondpoint.toml
    check "dpkg purges the package" dpkg --purge rondpoint
    rm -f /etc/sysctl.d/rondpoint-perf.conf
    check "no file is left" is "$(find / -xdev -path "$work" -prune -o -path "$package" -prune -o -iname '*rondpoint*' -print; ls -d /run/rondpoint /run/rondpoint-root 2>/dev/null)" ""
    check "no user is left" not getent passwd rondpoint
    check "no group is left" not getent group rondpoint
    check "systemd knows no unit of that name" is "$(systemctl list-units --all --plain --no-legend 'rondpoint*')" ""
    check "no unit has failed" is "$(systemctl list-units --failed --plain --no-legend)" ""
}

if [ "$1" = metrics ]; then
    metrics
    exit
fi
setpriv --reuid=$owner --regid=$owner --clear-groups sh -c 'while :; do :; done' &
busy=$!
jammed=
trap 'kill "$busy" $jammed 2> /dev/null; rm -rf "$work"' EXIT
all=$(cpus_of "$busy")
shift
[ $# -gt 0 ] || set -- installed observed started confined logged asked reloaded watched killed \
    placed measured upgraded removed
for part in "$@"; do
    echo "part $part"
    "$part"
done
exit $failed
