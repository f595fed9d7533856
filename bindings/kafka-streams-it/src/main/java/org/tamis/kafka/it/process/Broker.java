package org.tamis.kafka.it.process;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.ProducerConfig;

/**
 * A Kafka broker in a process of its own (KRaft, one node), on free ports of the loopback interface, with its logs in a
 * directory that is removed at the end.
 */
public final class Broker implements AutoCloseable {
    private static final Duration LONGEST_START = Duration.ofSeconds(90);

    private final ChildJvm process;
    private final Path directory;
    private final String address;

    private Broker(ChildJvm process, Path directory, String address) {
        this.process = process;
        this.directory = directory;
        this.address = address;
    }

    /**
     * Starts a broker, and returns when it answers.
     *
     * @param work a directory that exists; the broker's goes into it, and its messages, in {@code broker.log}
     * @throws IOException if it does not answer within 90 seconds
     */
    public static Broker start(Path work) throws IOException, InterruptedException {
        Path directory = Files.createTempDirectory(work, "broker");
        Path log = work.resolve("broker.log");
        int[] ports = freePorts();
        List<String> flags = List.of("-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        List<String> arguments = List.of(directory.toString(), String.valueOf(ports[0]), String.valueOf(ports[1]));
        ChildJvm process = ChildJvm.start(BrokerMain.class, flags, arguments, log, line -> {});
        Broker broker = new Broker(process, directory, "127.0.0.1:" + ports[0]);
        try {
            broker.awaitAnswer(log);
            return broker;
        } catch (IOException | InterruptedException | RuntimeException failure) {
            broker.close();
            throw failure;
        }
    }

    /** Two ports at once, so that they differ. */
    private static int[] freePorts() throws IOException {
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        try (ServerSocket one = new ServerSocket(0, 1, loopback); ServerSocket two = new ServerSocket(0, 1, loopback)) {
            return new int[] {one.getLocalPort(), two.getLocalPort()};
        }
    }

    private void awaitAnswer(Path log) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + LONGEST_START.toNanos();
        // Not before its port is open: a client that cannot connect waits longer each time, and says so each time.
        while (!isOpen()) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                throw new IOException("the broker did not start: see its log\n" + Files.readString(log));
            }
            Thread.sleep(100);
        }
        try (Admin admin = admin()) {
            admin.describeCluster().nodes().get(LONGEST_START.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException | java.util.concurrent.TimeoutException failure) {
            throw new IOException("the broker did not answer: see its log\n" + Files.readString(log), failure);
        }
    }

    private boolean isOpen() {
        String[] parts = address.split(":");
        try (java.net.Socket socket = new java.net.Socket(parts[0], Integer.parseInt(parts[1]))) {
            return socket.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }

    /** {@code host:port}, for {@code bootstrap.servers}. */
    public String address() {
        return address;
    }

    /**
     * Configurations for a producer that may write to topics which were just created.
     *
     * <p>One request in flight: a broker that does not know a new partition yet rejects its first batch. If it then accepts the
     * second, it rejects every retry of the first until that expires (KAFKA-15591).
     */
    public static Map<String, Object> producerConfigs(String address) {
        Map<String, Object> configs = new HashMap<>();
        configs.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        configs.put(ProducerConfig.ACKS_CONFIG, "all");
        configs.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
        configs.put(ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION, 1);
        return configs;
    }

    /** A new client for administration. */
    public Admin admin() {
        return Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, (Object) address));
    }

    /** Creates topics with this many partitions. */
    public void createTopics(Collection<String> names, int partitions, Map<String, String> configs) throws InterruptedException {
        try (Admin admin = admin()) {
            admin.createTopics(names.stream()
                            .map(name -> new NewTopic(name, partitions, (short) 1).configs(configs))
                            .collect(Collectors.toList()))
                    .all().get();
        } catch (ExecutionException failure) {
            throw new IllegalStateException("topics could not be created", failure.getCause());
        }
    }

    @Override
    public void close() {
        process.kill();
        Directories.delete(directory);
    }
}
