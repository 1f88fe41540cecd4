import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a consumer group until its standard input ends. Usage: GroupMember NAMESRV GROUP TOPIC; it prints the
 * queue and the body of each message that it consumed, one message a line, a repeated one once.
 */
public final class GroupMember {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        Set<String> lines = ConcurrentHashMap.newKeySet();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String line = message.getQueueId() + " " + new String(message.getBody(), StandardCharsets.UTF_8);
                if (lines.add(line)) {
                    System.out.println(line);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.in.readAllBytes(); // returns when whoever started this closes it
        consumer.shutdown();
        System.exit(0);
    }

    private GroupMember() {}
}
