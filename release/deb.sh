#!/bin/sh
# Makes a Debian package of a wheel: /opt/gaussdecode, a virtual environment of the system's Python
# with just what requirements.lock has; units, account, directories, examples and pages beside it.
#
# usage: release/deb.sh WHEEL OUT        ends with the path of the package; COMPRESS=-Znone is quick
set -eu
umask 022
cd "$(dirname "$0")/.."
wheel=$(realpath "$1") out=$(realpath -m "$2")
home=opt/gaussdecode

version=$(basename "$wheel" | cut -d- -f2)
python=$(basename "$wheel" | sed 's/.*-cp3\([0-9]*\)-cp3.*/python3.\1/')
machine=$(dpkg --print-architecture)
maintainer='gaussdecode maintainers <gaussdecode@localhost>'
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date --reference="$wheel" +%s)} # dpkg-deb takes it too
export SOURCE_DATE_EPOCH
[ -x "/usr/bin/$python" ] || { echo "deb: $wheel is for $python, which this Debian does not have" >&2; exit 1; }

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 0755 "$stage"
root=$stage/root
install -d "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/doc/gaussdecode" "$root/usr/share/lintian/overrides"

# The environment; what names the place where it was made is taken out or put right.
"/usr/bin/$python" -m venv "$stage/pip"
"/usr/bin/$python" -m venv --without-pip "$root/$home"
pip="$stage/pip/bin/pip --python $root/$home/bin/python --disable-pip-version-check --quiet"
$pip install --no-compile --require-hashes --only-binary :all: --requirement requirements.lock
$pip install --no-compile --no-deps --no-index "$wheel"
find "$root/$home/bin" -type f ! -name gaussdecode -delete
sed -i "1s|.*|#!/$home/bin/python|" "$root/$home/bin/gaussdecode"
sed -i '/^command = /d' "$root/$home/pyvenv.cfg"
rm -rf "$root/$home/include" "$root/$home"/lib/python*/site-packages/*/tests
find "$root/$home" -name direct_url.json -delete
"/usr/bin/$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / \
    "$root/$home/lib" >/dev/null
ln -s "/$home/bin/gaussdecode" "$root/usr/bin/gaussdecode"

"$root/$home/bin/python" -m gaussdecode install-units --destdir "$root" --prefix /usr/lib \
    --share /usr/share/gaussdecode --program "/$home/bin/gaussdecode" >/dev/null
cp -r docs/*.md docs/images SECURITY.md "$root/usr/share/doc/gaussdecode/"
gzip -9n <CHANGELOG.md >"$root/usr/share/doc/gaussdecode/CHANGELOG.md.gz"
gzip -9n >"$root/usr/share/doc/gaussdecode/changelog.gz" <<END
gaussdecode ($version) unstable; urgency=medium

  * See CHANGELOG.md.gz.

 -- $maintainer  $(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
END
cat >"$root/usr/share/doc/gaussdecode/copyright" <<END
Copyright (C) $(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y) the authors of gaussdecode
License: Apache-2.0; on Debian the text is in /usr/share/common-licenses/Apache-2.0

The copyright and licence of each package below /$home are in its .dist-info directory there.
END
cat >"$root/usr/share/lintian/overrides/gaussdecode" <<END
# A package of a third party: a virtual environment of its own, so that no package of Debian's or
# of an administrator's changes what was tested together.
gaussdecode: dir-or-file-in-opt
# What is in the wheels of others is installed as it is, so that it is what their checksums say.
gaussdecode: embedded-library
gaussdecode: unstripped-binary-or-object
gaussdecode: shared-library-is-executable
gaussdecode: shared-library-lacks-prerequisites
gaussdecode: library-not-linked-against-libc
gaussdecode: script-not-executable
gaussdecode: unusual-interpreter
gaussdecode: package-contains-timestamped-gzip
# The daemon's account cannot write here, and root's commands should not.
gaussdecode: package-installs-python-pycache-dir
# Instances are the administrator's, so debhelper's scripts for fixed units do not fit.
gaussdecode: maintainer-script-calls-systemctl
gaussdecode: systemd-service-file-refers-to-unusual-wantedby-target
# gaussdecode --help says it all; there is no list for mail.
gaussdecode: no-manual-page
gaussdecode: bogus-mail-host
gaussdecode: bogus-mail-host-in-debian-changelog
END

cat >"$root/DEBIAN/control" <<END
Package: gaussdecode
Version: $version
Architecture: $machine
Maintainer: $maintainer
Section: database
Priority: optional
Depends: $python, python3, libc6 (>= 2.17), systemd (>= 247)
Installed-Size: $(du -sk "$root" | cut -f1)
Description: changes of a GaussDB or PostgreSQL replication slot as Parquet
 A daemon that follows one logical replication slot of GaussDB, openGauss or
 PostgreSQL, decodes the stream in parallel and lands every committed change
 exactly once, in commit order, as Parquet files.
END
# Configurations, passwords and landings belong to the administrator: no step touches them.
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    systemd-sysusers gaussdecode.conf
    systemd-tmpfiles --create gaussdecode.conf
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl try-restart 'gaussdecode@*.service' 'gaussdecode-apply@*.service' \
            'gaussdecode-serve@*.service' gaussdecode-fleet.service || true
    fi
fi
END
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop gaussdecode.target 'gaussdecode@*.service' 'gaussdecode-apply@*.service' \
        'gaussdecode-serve@*.service' gaussdecode-fleet.service
fi
END
cat >"$root/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
END
chmod 0755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum |
    sed 's|  \./|  |') >"$stage/md5sums"
mv "$stage/md5sums" "$root/DEBIAN/md5sums"

if grep -rlI --exclude-dir=DEBIAN -e "$stage" "$root"; then
    echo "deb: these files name the place where they were made" >&2
    exit 1
fi
mkdir -p "$out"
package=$out/gaussdecode_${version}_$machine.deb
dpkg-deb --root-owner-group ${COMPRESS:--Zxz} --build "$root" "$package" >/dev/null
echo "$package"
