package org.tamis.kafka.it.process;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A Java process with this program's class path.
 *
 * <p>Its standard input is a line of commands, and its end means that the parent is gone: see {@link ParentWatch}. Lines of its
 * standard output go to a consumer, on a thread of their own; its standard error goes to a file. It is killed when this JVM
 * exits.
 */
public final class ChildJvm implements AutoCloseable {
    private final Process process;
    private final Writer commands;
    private final Thread reader;
    private final Thread hook;

    private ChildJvm(Process process, Consumer<String> lines) {
        this.process = process;
        this.commands = new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8);
        this.hook = new Thread(process::destroyForcibly, "kill-" + process.pid());
        Runtime.getRuntime().addShutdownHook(hook);
        this.reader = new Thread(() -> read(lines), "output-" + process.pid());
        reader.setDaemon(true);
        reader.start();
    }

    /**
     * Starts a process.
     *
     * @param main the class with {@code main}
     * @param flags flags of the JVM
     * @param arguments the program's
     * @param errors the file to which standard error is appended
     * @param lines receives each line of standard output
     * @throws IOException if it cannot be started
     */
    public static ChildJvm start(Class<?> main, List<String> flags, List<String> arguments, Path errors, Consumer<String> lines)
            throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(flags);
        command.add(main.getName());
        command.addAll(arguments);
        ProcessBuilder builder = new ProcessBuilder(command);
        // By the environment: a command line has a limit, and the list of processes would show it.
        builder.environment().put("CLASSPATH", System.getProperty("java.class.path"));
        builder.redirectError(ProcessBuilder.Redirect.appendTo(errors.toFile()));
        return new ChildJvm(builder.start(), lines);
    }

    private void read(Consumer<String> lines) {
        try (BufferedReader output =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                lines.accept(line);
            }
        } catch (IOException gone) {
            // The pipe breaks when the process is killed; what it had written is read by then.
        }
    }

    /** Sends one line to its standard input. */
    public void command(String line) throws IOException {
        commands.write(line + "\n");
        commands.flush();
    }

    /** The id of the process. */
    public long pid() {
        return process.pid();
    }

    /** Whether the process runs. */
    public boolean isAlive() {
        return process.isAlive();
    }

    /** Waits for its end and the end of its output, and returns its exit status; kills it if it takes longer. */
    public int await(long seconds) throws InterruptedException {
        if (!process.waitFor(seconds, TimeUnit.SECONDS)) {
            kill();
        }
        int status = process.waitFor();
        reader.join(TimeUnit.SECONDS.toMillis(10));
        forget();
        return status;
    }

    /** {@code kill -9}. Returns when the process is gone. */
    public void kill() {
        process.destroyForcibly();
        process.onExit().join();
        forget();
    }

    private void forget() {
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException exiting) {
            // The hook is about to run, or has run, and finds no process.
        }
    }

    @Override
    public void close() {
        kill();
    }
}
