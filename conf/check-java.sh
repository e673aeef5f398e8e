#!/usr/bin/env bash
# Spark 4.2 needs Java 17 or newer. Says so in one line, with the command that gets it.
set -euo pipefail

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
version="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)" || version=""
if [ -z "$version" ]; then
    found="Java is missing"
elif [ "$version" -lt 17 ]; then
    found="Java $version is too old"
else
    exit 0
fi
echo "$found: Spark needs Java 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), or set JAVA_HOME" >&2
exit 2
