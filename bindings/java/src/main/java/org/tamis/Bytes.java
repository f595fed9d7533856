package org.tamis;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Objects;

/** Numbers and parts of arrays. */
final class Bytes {
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private Bytes() {}

    static int getInt(byte[] array, int at) {
        return (int) INT.get(array, at);
    }

    static void setInt(byte[] array, int at, int value) {
        INT.set(array, at, value);
    }

    /** Returns a part of an array. Throws IndexOutOfBoundsException for another one, where the array's class would pad it with zeros. */
    static byte[] copy(byte[] array, int at, int length) {
        Objects.checkFromIndexSize(at, length, array.length);
        return Arrays.copyOfRange(array, at, at + length);
    }
}
