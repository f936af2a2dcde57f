#!/usr/bin/env bash
# Usage: mysql_debian.sh DIR
#
# Makes DIR/bin/mysqld: a real MySQL server out of Debian unstable, for machines whose own release
# packages MariaDB only. Nothing is installed: the packages and every library they need are
# unpacked below DIR, and mysqld runs on those libraries alone. A DIR that is complete is kept as
# it is. Takes about half a gigabyte; needs apt-get, dpkg-deb and flock, but not root.
set -euo pipefail
umask 022  # the account that runs the server must be able to read it

target=$(realpath -m "${1:?usage: mysql_debian.sh DIR}")
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

debian_mirror() {
    # the label is known once the machine has fetched its lists; before that the address must do
    local rows
    rows=$(apt-get indextargets --format '$(LABEL)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages')
    awk -F'|' '$1 == "Debian" && $2 == "main" { print $3; exit }' <<<"$rows" | grep . ||
        awk -F'|' '$2 == "main" && $3 ~ /\/debian\/?$/ { print $3; exit }' <<<"$rows"
}

private_apt() {
    # an empty status file makes apt fetch the whole closure, libc included
    local state=$1 mirror=$2
    mkdir -p "$state"/{lists,archives}/partial "$state/none"
    : >"$state/status"
    printf 'deb [signed-by=%s] %s unstable main\n' "$keyring" "$mirror" >"$state/sources.list"
    cat >"$state/apt.conf" <<CONF
Dir::Etc::SourceList "$state/sources.list";
Dir::Etc::SourceParts "$state/none";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "$state/none";
Dir::State::Lists "$state/lists";
Dir::State::Status "$state/status";
Dir::Cache "$state";
Dir::Log "$state";
Acquire::Languages "none";
APT::Sandbox::User "";
APT::Install-Recommends "false";
CONF
}

write_launcher() {
    # the unpacked loader, because the machine's libc may be older than the packages want
    mkdir -p "$1/bin"
    cat >"$1/bin/mysqld" <<'LAUNCHER'
#!/bin/sh
root=$(dirname "$(dirname "$(realpath "$0")")")/root
for loader in "$root"/usr/lib/*-linux-gnu*/ld-linux*.so.*; do break; done
exec "$loader" --library-path "$(dirname "$loader")" "$root/usr/sbin/mysqld" "$@" \
    --basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" \
    --plugin-dir="$root/usr/lib/mysql/plugin"
LAUNCHER
    chmod 755 "$1/bin/mysqld"
}

mkdir -p "$(dirname "$target")"
exec 9>"$target.lock"
flock 9
[[ -x $target/bin/mysqld ]] && exit 0

# DIR appears by one rename at the end, so that a run cut short leaves only this behind
build=$target.partial
rm -rf "$build"
mkdir -p "$build/root"

mirror=$(debian_mirror)
[[ -n $mirror ]] || { echo 'the apt sources of this machine name no Debian mirror' >&2; exit 1; }
private_apt "$build/apt" "$mirror"
export APT_CONFIG=$build/apt/apt.conf
apt-get -qq update
apt-get -qq --yes --download-only install mysql-server-core
for package in "$build"/apt/archives/*.deb; do
    dpkg-deb --extract "$package" "$build/root"
done
rm -rf "$build/apt" "$build"/root/usr/share/{doc,man,locale,info}
write_launcher "$build"
chmod 755 "$build"
"$build/bin/mysqld" --version
rm -rf "$target"
mv -T "$build" "$target"
