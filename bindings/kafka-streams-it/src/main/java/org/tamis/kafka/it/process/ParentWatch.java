package org.tamis.kafka.it.process;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/** The other end of {@link ChildJvm}: a child serves its parent's commands, and ends when its parent does. */
public final class ParentWatch {
    private ParentWatch() {}

    /**
     * Starts a daemon thread that hands each line of standard input to {@code commands}, and runs {@code gone} when the input
     * ends, which it does when the parent dies, however it dies.
     */
    public static void start(Consumer<String> commands, Runnable gone) {
        Thread thread = new Thread(() -> {
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            try {
                for (String line = input.readLine(); line != null; line = input.readLine()) {
                    commands.accept(line);
                }
            } catch (IOException broken) {
                // As an end.
            }
            gone.run();
        }, "parent-watch");
        thread.setDaemon(true);
        thread.start();
    }
}
