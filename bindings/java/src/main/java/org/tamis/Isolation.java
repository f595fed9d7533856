package org.tamis;

/** How an optimistic transaction is isolated. */
public enum Isolation {
    /** What was read is validated at the commit: the outcome is that of one transaction after the other. */
    SERIALIZABLE,
    /** What was written is: the first committer wins. Write skew is possible. */
    SNAPSHOT
}
