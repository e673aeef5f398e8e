#!/bin/bash
# Fetches what the benchmarks compare with into $SRMP_PEERS_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/srmp-spark-peers):
# wrk, RabbitMQ, Kafka, Spark's Kafka source, a load client, OpenPGM, go-msrpc, impacket, Apache CXF. Idempotent; takes 4 to 10
# minutes the first time. Needs Python 3, a JDK 17, Maven and Go; root for the Debian packages. What cannot be had is named, the rest goes on:
# `python -m benchmarks` then marks those figures "ok": null.
set -uo pipefail
C=${SRMP_PEERS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/srmp-spark-peers}
mkdir -p "$C/build"
HERE=$(cd "$(dirname "$0")" && pwd)
missing=0
lack() { echo "not set up: $*" >&2; missing=1; }

packages=()
command -v wrk >/dev/null || packages+=(wrk)
command -v rabbitmq-server >/dev/null || [ -x /usr/sbin/rabbitmq-server ] || packages+=(rabbitmq-server)
pkg-config --exists openpgm-5.3 2>/dev/null && command -v cc >/dev/null || packages+=(libpgm-dev gcc libc6-dev pkg-config)
command -v nft >/dev/null || [ -x /usr/sbin/nft ] || packages+=(nftables)
command -v ip >/dev/null || [ -x /usr/sbin/ip ] || packages+=(iproute2)
if [ ${#packages[@]} != 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${packages[@]}"; } \
      >"$C/build/apt.log" 2>&1 || lack "${packages[*]} (apt-get failed, see $C/build/apt.log)"
  else
    lack "${packages[*]} (needs root and apt-get; install these packages yourself)"
  fi
fi

if ! "$C/py/bin/python" -c 'import confluent_kafka, impacket' 2>/dev/null; then
  { python3 -m venv "$C/py" && "$C/py/bin/pip" install -q confluent-kafka impacket==0.13.1; } >"$C/build/pip.log" 2>&1 \
    || lack "confluent-kafka and impacket (see $C/build/pip.log)"
fi

pom() { # group artifact version dependency-body
  cat > "$C/build/pom.xml" <<P
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies><dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version>$4</dependency></dependencies></project>
P
}
copy() { # folder: copies the jars of the last pom
  (cd "$C/build" && mvn -q -B -Dmaven.repo.local="$C/m2" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1" >mvn.log 2>&1)
}
with_dependencies() { # folder group artifact versions...: the first version that the repository has
  [ -f "$C/$1/.complete" ] && return
  for v in "${@:4}"; do
    pom "$2" "$3" "$v" ""
    rm -rf "${C:?}/$1"
    copy "$C/$1" && { touch "$C/$1/.complete"; echo "$3 $v"; return; }
  done
  lack "$3 (see $C/build/mvn.log)"
}
alone() { # group artifact versions...: one jar into spark-kafka, without its dependencies
  ls "$C/spark-kafka/$2"-[0-9]*.jar >/dev/null 2>&1 && return
  for v in "${@:3}"; do
    pom "$1" "$2" "$v" "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    copy "$C/spark-kafka" && { echo "$2 $v"; return; }
  done
  lack "$2 (see $C/build/mvn.log)"
}
if command -v mvn >/dev/null; then
  with_dependencies kafka org.apache.kafka kafka_2.13 4.3.0 4.2.0 4.1.0 4.0.0
  # The four jars of Spark's Kafka source one by one: no spark-token-provider newer than 4.0.0 was to be had, and Spark's
  # parent POM names a repository that is not always reachable. Without delegation tokens that version is enough.
  alone org.apache.spark spark-sql-kafka-0-10_2.13 4.2.0
  alone org.apache.spark spark-token-provider-kafka-0-10_2.13 4.2.0 4.0.0
  alone org.apache.kafka kafka-clients 3.9.2 3.9.1
  alone org.apache.commons commons-pool2 2.13.1 2.12.0
else
  lack "Kafka and Spark's Kafka source (needs Maven)"
fi

if command -v go >/dev/null; then
  [ -x "$C/brokers" ] || (cd "$HERE/load" && go build -o "$C/brokers" ./brokers) || lack "the load client (go build failed)"
else
  lack "the load client (needs Go)"
fi
TESTS=$(cd "$HERE/../../tests/peers" && pwd)
"$TESTS/mqrr/build.sh" >"$C/build/go-msrpc.log" 2>&1 || lack "go-msrpc's client (see $C/build/go-msrpc.log)"
"$TESTS/wsrm/build.sh" >"$C/build/cxf.log" 2>&1 || lack "Apache CXF (see $C/build/cxf.log)"
[ $missing = 0 ] && echo ready
exit $missing
