"""`twinlog store`: what is in a store, whether it is sound, whether two are equal, and what was set aside.

`app` has the commands that only read files, `resend` sends the messages of a tail that was cut off to a cluster again.
In: store directories, files of tails, answers of brokers. Out: lines, JSON, sends. Must not change a store.
"""
