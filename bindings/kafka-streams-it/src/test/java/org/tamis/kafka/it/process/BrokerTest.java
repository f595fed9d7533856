package org.tamis.kafka.it.process;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class BrokerTest {
    /** The bench waited two minutes for the first batch of a topic, and failed. With several requests in flight, a third of the rounds fail. */
    @Test
    @Timeout(300)
    void topicsCanBeFilledOnceTheyAreCreated(@TempDir Path work) throws Exception {
        List<String> failures = Collections.synchronizedList(new ArrayList<>());
        try (Broker broker = Broker.start(Files.createDirectories(work))) {
            Map<String, Object> configs = Broker.producerConfigs(broker.address());
            configs.put(ProducerConfig.BATCH_SIZE_CONFIG, 4 << 10);
            configs.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 40_000);
            broker.createTopics(List.of("before"), 1, Map.of());
            for (int round = 0; round < 20 && failures.isEmpty(); round++) {
                List<String> topics = new ArrayList<>();
                for (int i = 0; i < 5; i++) {
                    topics.add("topic-" + round + "-" + i);
                }
                try (KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
                    // It is connected before they are created.
                    producer.send(new ProducerRecord<>("before", new byte[1], new byte[1])).get();
                    broker.createTopics(topics, 4, Map.of());
                    for (int i = 0; i < 2000; i++) {
                        byte[] key = {(byte) i, (byte) (i >> 8)};
                        producer.send(new ProducerRecord<>(topics.get(4), key, new byte[100]), (metadata, error) -> {
                            if (error != null) {
                                failures.add(error.toString());
                            }
                        });
                    }
                    producer.flush();
                }
            }
        }
        assertEquals(List.of(), failures);
    }
}
