#!/usr/bin/env bash
# dist/purelb-VERSION-1.ARCH.rpm and dist/purelbctl-VERSION-1.ARCH.rpm: the same commit
# gives the same bytes. See stage.sh and version.sh for the variables.
set -euo pipefail
# shellcheck source=packaging/version.sh
. "$(dirname "${BASH_SOURCE[0]}")/../version.sh"
here=$source/packaging/rpm
"$source/tests/setup.sh" build package

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/packaging/stage.sh" rpm "$work/staged"
cp "$source/LICENSE" "$work/staged/LICENSE"
find "$work/staged" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$dist"
compression=w6.xzdio
[[ -z ${PURELB_QUICK-} ]] || compression=w1.gzdio

# rpm writes neither its host, nor its own database, nor today's date into the package.
rpmbuild -bb --quiet --noclean \
    --define "_topdir $work/top" --define "_rpmdir $dist" --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    --define "staged $work/staged" --define "release_version $version" \
    --define "maintainer $maintainer" --define "changelog_date $(date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" \
    --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
    --define 'clamp_mtime_to_source_date_epoch 1' \
    --define "_binary_payload $compression" \
    --define '_docdir /usr/share/doc' --define '_mandir /usr/share/man' \
    "$here/purelb.spec" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

architecture=$(rpm --eval '%{_arch}')
packages=("$dist/purelb-$version-1.$architecture.rpm" "$dist/purelbctl-$version-1.$architecture.rpm")
if [[ -z ${PURELB_QUICK-} ]]; then
    # Its status counts errors only.
    rpmlint --config "$here/rpmlint.toml" "${packages[@]}" >"$work/lint" 2>&1 || true
    if ! grep ' 0 errors, 0 warnings' "$work/lint"; then
        cat "$work/lint" >&2
        exit 1
    fi
fi
sha256sum "${packages[@]}"
