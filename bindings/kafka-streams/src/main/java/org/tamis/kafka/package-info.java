/** State stores of Kafka Streams that are kept by tamis. */
package org.tamis.kafka;
