"""Nouns: the values that users write and the kernel reads.

Vocabulary: a *label* is a key and a value on a node, actor or task. An *expression* asks one question of labels; a
*selector* is expressions that must all hold. A *taint* keeps work off a node unless the work *tolerates* it. An
*affinity* asks about the labels of what is already placed on a node. A *request* is everything that decides where one
piece of work may run, in one canonical form, whatever the spelling. A *virtual cluster* is a share of its parent.

Everything here is frozen and hashable. May import: the standard library and ``remora.errors``. Nothing else.
"""
