# What the scripts here share.

# Installs Debian packages if a command is missing.
need_package() { # command, Debian packages
    command -v "$1" >/dev/null && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${@:2}" >&2
}
