"""The power-cut simulator: what trainer, proxy and command line did to their files is recorded once, then every state
that a power cut could have left is rebuilt and read by fresh readers.

`scenario` is what is recorded; `calls` are the system calls it makes, `deeds` follows them, `ops` is what they did;
`disk` is what a file system may have kept of it; `explorer` goes through the states; `truth` says what was promised by
when; `readers` look; `twin` sends real processes on; `mutations` show that all of it can fail.
"""
