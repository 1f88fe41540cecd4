import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The messages a push consumer was given, in the order of arrival. Delivery is at least once: when queues are shared
 * anew, or an answer was late, some come again; only {@link #deliveries} tells of that. A retry is not a repetition.
 */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();
    private final List<String> deliveries = new ArrayList<>();
    private final Set<String> known = new HashSet<>();

    synchronized void add(MessageExt message) {
        deliveries.add(Bench.text(message.getBody()));
        if (known.add(message.getMsgId() + " " + message.getReconsumeTimes())) {
            messages.add(message);
        }
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    synchronized int size() {
        return messages.size();
    }

    /** The bodies of all deliveries, repeated ones as well. */
    synchronized List<String> deliveries() {
        return new ArrayList<>(deliveries);
    }

    List<String> bodies() {
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : all()) {
            bodies.add(Bench.text(message.getBody()));
        }
        return bodies;
    }

    List<Map<String, Object>> described() {
        List<Map<String, Object>> described = new ArrayList<>();
        for (MessageExt message : all()) {
            described.add(Bench.describe(message));
        }
        return described;
    }

    boolean awaitSize(int wanted) throws Exception {
        return Bench.await(() -> size() >= wanted);
    }

    /** Waits a little for messages that must not come. */
    void settle(long millis) throws Exception {
        Thread.sleep(millis);
    }

    void listen(DefaultMQPushConsumer consumer) {
        consumer.registerMessageListener((MessageListenerConcurrently) (arrived, context) -> {
            arrived.forEach(this::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }
}
