package org.tamis.kafka.it.faults;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads the output topics by {@code read_committed}. Records of one key are in one partition, so they arrive in order. */
final class OutputReader implements AutoCloseable {
    final Outputs outputs = new Outputs();
    private final KafkaConsumer<String, String> consumer;

    OutputReader(String broker) {
        Map<String, Object> configs = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, broker,
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 5_000);
        consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
        List<TopicPartition> partitions = new ArrayList<>();
        for (String topic : Topics.OUTPUTS) {
            for (int partition = 0; partition < Topics.PARTITIONS; partition++) {
                partitions.add(new TopicPartition(topic, partition));
            }
        }
        consumer.assign(partitions);
    }

    /** Reads what has come, and waits this long for something if nothing has. */
    void poll(Duration wait) {
        for (ConsumerRecord<String, String> record : consumer.poll(wait)) {
            outputs.take(record.topic(), record.key(), record.value());
        }
    }

    @Override
    public void close() {
        consumer.close(CloseOptions.timeout(Duration.ofSeconds(1)));
    }
}
