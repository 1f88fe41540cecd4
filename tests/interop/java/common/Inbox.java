import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** The messages a push consumer was given, in the order of arrival. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();

    synchronized void add(MessageExt message) {
        messages.add(message);
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    synchronized int size() {
        return messages.size();
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

    boolean awaitSize(int wanted, long millis) throws Exception {
        return Bench.await(millis, () -> size() >= wanted);
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
