package org.tamis;

/** How an optimistic transaction is isolated. */
public enum Isolation {
    /** What was read is validated at the commit: the outcome is that of one transaction after the other. */
    SERIALIZABLE,
    /** What was written is: the first committer wins. Write skew is possible. */
    SNAPSHOT;

    /**
     * Returns the isolation of a name.
     *
     * @param name {@code "serializable"} or {@code "snapshot"}
     * @return the isolation
     * @throws InvalidArgumentException for another name
     */
    public static Isolation of(String name) {
        switch (name) {
            case "serializable":
                return SERIALIZABLE;
            case "snapshot":
                return SNAPSHOT;
            default:
                throw TamisException.of(
                        ErrorCode.INVALID_ARGUMENT,
                        "isolation is `serializable` or `snapshot`, not `" + name + "`");
        }
    }
}
