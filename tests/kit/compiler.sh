#!/bin/sh
# The compiler for another build of the package: set-up has compiled the same C already, and its object is
# taken. All else is gcc's. SETUP is the checkout, OBJECTS the directory of its objects.
for word in "$@"; do
    case $word in
        *.c) source=$word ;;
        *.o) object=$word ;;
    esac
done
kept=$OBJECTS/${source%.c}.o
if [ -e "$kept" ] && [ ! "$kept" -ot "$SETUP/$source" ] && cmp -s "$source" "$SETUP/$source"; then
    exec cp "$kept" "$object"
fi
exec gcc "$@"
