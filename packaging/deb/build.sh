#!/usr/bin/env bash
# dist/purelb_VERSION_ARCH.deb and dist/purelbctl_VERSION_ARCH.deb, with dpkg-deb alone:
# the same commit gives the same bytes. See stage.sh and version.sh for the variables.
set -euo pipefail
# shellcheck source=packaging/version.sh
. "$(dirname "${BASH_SOURCE[0]}")/../version.sh"
here=$source/packaging/deb
"$source/tests/setup.sh" build package

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/packaging/stage.sh" deb "$work"
architecture=$(dpkg --print-architecture)
mkdir -p "$dist"
compression=(-Zxz)
[[ -z ${PURELB_QUICK-} ]] || compression=(-Zgzip -z1)

# The libraries the program really needs, in the versions it needs.
libraries() {
    mkdir -p "$work/shlibs/debian"
    printf 'Source: purelb\n\nPackage: purelb\nArchitecture: any\n' >"$work/shlibs/debian/control"
    (cd "$work/shlibs" && dpkg-shlibdeps -O --ignore-missing-info "$1" 2>/dev/null) | sed 's/^shlibs:Depends=//'
}

pack() {
    local package=$1 program=$2 root=$work/$1 doc=$work/$1/usr/share/doc/$1
    install -d "$root/DEBIAN" "$doc"
    install -m 0644 "$here/copyright" "$doc/copyright"
    printf '%s (%s) unstable; urgency=medium\n\n  * Release %s.\n\n -- %s  %s\n' "$package" "$version" "$version" \
        "$maintainer" "$(date -uR -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
    [[ -f $here/$package/overrides ]] &&
        install -D -m 0644 "$here/$package/overrides" "$root/usr/share/lintian/overrides/$package"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@MAINTAINER@/$maintainer/" \
        -e "s/@LIBRARIES@/$(libraries "$root/$program")/" \
        -e "s/@SIZE@/$(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f1)/" \
        "$here/$package/control" >"$root/DEBIAN/control"
    [[ -d $root/etc ]] && (cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
    (cd "$root" && find usr etc -type f -print0 2>/dev/null | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    local script
    for script in preinst postinst prerm postrm; do
        [[ -f $here/$package/$script ]] && install -m 0755 "$here/$package/$script" "$root/DEBIAN/$script"
    done
    local deb=$dist/${package}_${version}_$architecture.deb
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # One thread: how xz cuts its blocks must not depend on the machine.
    dpkg-deb --root-owner-group --threads-max=1 "${compression[@]}" --build "$root" "$deb" >/dev/null
    echo "$deb"
}

packages=("$(pack purelb usr/sbin/purelbd)" "$(pack purelbctl usr/bin/purelbctl)")
[[ -n ${PURELB_QUICK-} ]] ||
    lintian --fail-on error,warning --tag-display-limit 0 --info "${packages[@]}"
sha256sum "${packages[@]}"
