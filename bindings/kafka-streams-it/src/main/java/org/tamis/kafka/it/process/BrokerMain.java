package org.tamis.kafka.it.process;

import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

import kafka.Kafka;
import kafka.tools.StorageTool;
import org.apache.kafka.common.Uuid;

/**
 * One Kafka node that is broker and controller: formats its storage and serves until its parent kills it.
 * If the parent is gone, it removes its directory and ends.
 *
 * <p>Arguments: a directory, which it may create, the broker's port, the controller's port.
 */
public final class BrokerMain {
    private BrokerMain() {}

    public static void main(String[] arguments) throws IOException {
        Path directory = Path.of(arguments[0]);
        ParentWatch.start(command -> {}, () -> leave(directory));
        Files.createDirectories(directory);
        Path file = directory.resolve("server.properties");
        try (Writer writer = Files.newBufferedWriter(file)) {
            properties(directory, Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2])).store(writer, null);
        }
        String[] format = {"format", "-t", Uuid.randomUuid().toString(), "-c", file.toString()};
        int status = StorageTool.execute(format, System.err);
        if (status != 0) {
            throw new IllegalStateException("the storage could not be formatted: status " + status);
        }
        Kafka.main(new String[] {file.toString()});
    }

    private static Properties properties(Path directory, int port, int controllerPort) {
        Properties properties = new Properties();
        properties.setProperty("process.roles", "broker,controller");
        properties.setProperty("node.id", "1");
        properties.setProperty("controller.quorum.voters", "1@127.0.0.1:" + controllerPort);
        properties.setProperty("controller.listener.names", "CONTROLLER");
        properties.setProperty("listeners", "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controllerPort);
        properties.setProperty("advertised.listeners", "PLAINTEXT://127.0.0.1:" + port);
        properties.setProperty("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        properties.setProperty("log.dirs", directory.resolve("logs").toString());
        properties.setProperty("auto.create.topics.enable", "false");
        // One node: nothing can be replicated.
        properties.setProperty("offsets.topic.replication.factor", "1");
        properties.setProperty("transaction.state.log.replication.factor", "1");
        properties.setProperty("transaction.state.log.min.isr", "1");
        properties.setProperty("default.replication.factor", "1");
        // Fewer files, a faster start.
        properties.setProperty("offsets.topic.num.partitions", "5");
        properties.setProperty("transaction.state.log.num.partitions", "5");
        // Instances that die are noticed within seconds, and what they left open is aborted soon.
        properties.setProperty("group.initial.rebalance.delay.ms", "0");
        properties.setProperty("group.min.session.timeout.ms", "1000");
        properties.setProperty("transaction.abort.timed.out.transaction.cleanup.interval.ms", "1000");
        return properties;
    }

    /** Nothing of it is worth an orderly end. */
    private static void leave(Path directory) {
        Directories.delete(directory);
        Runtime.getRuntime().halt(0);
    }
}
