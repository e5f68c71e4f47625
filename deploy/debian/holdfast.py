#!/opt/holdfast/bin/python3 -I
from holdfast.cli import main

main()
