#!/bin/sh
# A perl for the tests that run the first Job of Kubernetes' manual, which computes pi on the host, as the process runtime
# pulls no images. The Math::BigFloat of Debian 12's perl crashes when it prints so many digits: so this tries exactly what
# that Job runs. Debian's newer package of the module works.
set -eu

works() {
    perl -MMath::BigFloat=1.999838 -e 1 2>/dev/null || perl -Mbignum=bpi -wle 'print bpi(2000)' >/dev/null 2>&1
}

if ! works; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "perl is missing, or its Math::BigFloat is broken: install perl and libmath-bigint-perl (or newer than 1.999837)" >&2
        exit 1
    fi
    echo "installing perl and a working Math::BigFloat" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends perl libmath-bigint-perl >/dev/null
fi
