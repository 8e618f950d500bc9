#!/bin/sh
# Boots this system's systemd on a copy of the file system that nobody else sees, again after
# each reboot, until it is told to power off. See kit/machine.py, which starts it.
#
# usage: machine.sh DIRECTORY GROUP [PYTHON_PREFIX SITE_PACKAGES CHECKOUT]
set -eu
umask 022
directory=$1 name=$2
root=$directory/root

mount --make-rprivate /
mount -t tmpfs -o mode=0755 machine "$directory"
mkdir "$directory/upper" "$directory/work" "$root" "$directory/groups"

# A control group of its own, below that of this process.
mount -t cgroup2 cgroup2 "$directory/groups"
group=$directory/groups$(sed -n 's/^0:://p' /proc/self/cgroup)/$name
mkdir "$group"
echo 0 >"$group/cgroup.procs"

mount -t overlay -o "lowerdir=/,upperdir=$directory/upper,workdir=$directory/work" overlay "$root"

# Nothing that this machine runs is run there: only what the packages of Debian start.
rm -rf "$root"/etc/systemd/system/* "$root"/etc/rc?.d/* "$root"/run/* "$root"/var/log/journal
: >"$root/etc/fstab"
: >"$root/etc/machine-id"
for unit in systemd-sysctl.service systemd-modules-load.service systemd-udevd.service \
    systemd-udev-trigger.service systemd-logind.service systemd-random-seed.service \
    systemd-remount-fs.service systemd-networkd.service systemd-resolved.service \
    systemd-timesyncd.service e2scrub_reap.service sys-kernel-debug.mount \
    sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
    dev-hugepages.mount dev-mqueue.mount getty.target timers.target; do
    ln -s /dev/null "$root/etc/systemd/system/$unit"
done

# The program, where every user may read it, as `pip install` in /opt would leave it.
if [ $# -gt 2 ]; then
    python=$3 packages=$4 checkout=$5
    mkdir -p "$root/opt/python" "$root/opt/packages" "$root/opt/checkout" \
        "$root/opt/gaussdecode/bin" "$root/opt/gaussdecode/lib/$(basename "$(dirname "$packages")")/site-packages"
    if [ "$python" != /usr ]; then
        mount --bind "$python" "$root/opt/python"
        echo /opt/python/lib >"$root/etc/ld.so.conf.d/python.conf"
        chroot "$root" ldconfig
        python=/opt/python
    fi
    mount --bind "$packages" "$root/opt/packages"
    mount --bind "$checkout" "$root/opt/checkout"
    printf '%s\n' /opt/checkout /opt/packages \
        >"$root/opt/gaussdecode/lib/$(basename "$(dirname "$packages")")/site-packages/machine.pth"
    printf 'home = %s/bin\ninclude-system-site-packages = false\n' "$python" >"$root/opt/gaussdecode/pyvenv.cfg"
    ln -s "$python/bin/python3" "$root/opt/gaussdecode/bin/python"
    printf '#!/opt/gaussdecode/bin/python\nimport sys\nfrom gaussdecode.cli import main\nsys.exit(main())\n' \
        >"$root/opt/gaussdecode/bin/gaussdecode"
    chmod 0755 "$root/opt/gaussdecode/bin/gaussdecode"
    ln -sf /opt/gaussdecode/bin/gaussdecode "$root/usr/local/bin/gaussdecode"
fi

boot='
set -eu
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys 2>/dev/null || mount --rbind /sys sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
for name in null zero full random urandom tty; do
    : >dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
hostname machine
mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old
mount --make-rshared /
exec env -i container=machine PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
    /lib/systemd/systemd --unit=multi-user.target --log-target=journal --show-status=0
'
# The kernel ends a process namespace that reboots with SIGHUP, one that powers off with SIGINT.
status=129
while [ "$status" = 129 ]; do
    status=0
    setsid unshare --mount --propagation slave --pid --cgroup --uts --ipc --kill-child \
        sh -c "$boot" boot "$root" || status=$?
done
exit "$status"
