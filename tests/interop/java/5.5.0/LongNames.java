import java.util.Collections;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;

/**
 * Sends to a retry topic whose name is longer than 127 characters, which takes the second record version (5.x only).
 * The broker has to know the group already, and the client's producer refuses such names, so this goes one layer below
 * it. Usage: LongNames NAMESRV BROKER
 */
public final class LongNames {
    static final String TOPIC = "%RETRY%" + String.join("", Collections.nCopies(15, "0123456789"));

    public static void main(String[] args) throws Exception {
        try (Bench bench = new Bench(args[0], args[1], "long")) {
            bench.createTopic(TOPIC, 1);
            DefaultMQProducer producer = bench.producer();
            var factory = producer.getDefaultMQProducerImpl().getMqClientFactory();
            for (int i = 0; i < 5; i++) {
                Message message = Bench.message(TOPIC, "t", "long-" + i, "long name " + i);
                MessageClientIDSetter.setUniqID(message);
                SendMessageRequestHeader header = new SendMessageRequestHeader();
                header.setProducerGroup(producer.getProducerGroup());
                header.setTopic(TOPIC);
                header.setDefaultTopic("TBW102");
                header.setDefaultTopicQueueNums(1);
                header.setQueueId(0);
                header.setSysFlag(0);
                header.setBornTimestamp(System.currentTimeMillis());
                header.setFlag(0);
                header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
                header.setReconsumeTimes(0);
                header.setUnitMode(false);
                header.setBatch(false);
                SendResult sent = factory.getMQClientAPIImpl().sendMessage(args[1], "broker-a", message, header, 10_000,
                    CommunicationMode.SYNC, null, producer.getDefaultMQProducerImpl());
                StoreFill.written(TOPIC, sent, message.getBody(), "long-" + i);
            }
            System.out.println("{\"done\":true}");
        }
        System.exit(0);
    }
}
