package org.tamis.kafka.it.faults;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.tamis.kafka.it.process.Broker;

/** Sends the input, batch by batch, on a thread of its own. Each record is acknowledged, and sent once. */
final class Sender implements AutoCloseable {
    private static final long BATCH_INTERVAL_MS = 50;

    private final KafkaProducer<String, String> producer;
    private final Input input;
    private final List<Input.Event> sent = new ArrayList<>();
    private final Thread thread = new Thread(this::send, "sender");
    private volatile boolean isStopped;
    private volatile RuntimeException failure;
    private int batches;

    Sender(String broker, Input input) {
        this.input = input;
        producer = new KafkaProducer<>(Broker.producerConfigs(broker), new StringSerializer(), new StringSerializer());
    }

    void start() {
        thread.start();
    }

    private void send() {
        try {
            while (!isStopped) {
                List<Input.Event> batch = input.batch(batches);
                List<Future<?>> pending = new ArrayList<>();
                for (Input.Event event : batch) {
                    pending.add(producer.send(new ProducerRecord<>(event.topic, null, event.timeMs, event.key, event.value)));
                }
                producer.flush();
                for (Future<?> one : pending) {
                    one.get();
                }
                sent.addAll(batch);
                batches++;
                Thread.sleep(BATCH_INTERVAL_MS);
            }
        } catch (ExecutionException | KafkaException | IllegalStateException failed) {
            failure = new IllegalStateException("input could not be sent", failed);
        } catch (InterruptedException interrupted) {
            failure = new IllegalStateException("sending was interrupted", interrupted);
        }
    }

    /** Stops after the present batch. */
    void stop() throws InterruptedException {
        isStopped = true;
        thread.join();
        if (failure != null) {
            throw failure;
        }
    }

    /** All that was sent; only after {@link #stop}. */
    List<Input.Event> sent() {
        return sent;
    }

    /** The event time of the first batch. */
    long beginMs() {
        return input.beginOf(0);
    }

    /** The event time after the last batch. */
    long lastTimeMs() {
        return input.beginOf(batches);
    }

    /** Sends one record to each partition of the left side, with a time so many hours after the input. */
    void moveClocks(int hours) {
        long time = lastTimeMs() + hours * 3_600_000L;
        for (int partition = 0; partition < Topics.PARTITIONS; partition++) {
            String key = CountAndJoin.CLOCK + partition;
            producer.send(new ProducerRecord<>(Topics.LEFT, partition, time, key, String.valueOf(hours)));
        }
        producer.flush();
    }

    @Override
    public void close() {
        isStopped = true;
        producer.close();
    }
}
