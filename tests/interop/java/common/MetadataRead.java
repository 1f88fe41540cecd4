import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Reads metadata files with RocketMQ's own classes and prints, after the word METADATA, what it understood. */
public class MetadataRead {
    private static final String OLD = "org.apache.rocketmq.common.protocol.body.";
    private static final String NEW = "org.apache.rocketmq.remoting.protocol.body.";

    public static void main(String[] args) throws Exception {
        Path config = Paths.get(args[0]);
        read(config, "topics.json", NEW + "TopicConfigSerializeWrapper", OLD + "TopicConfigSerializeWrapper");
        read(config, "subscriptionGroup.json", NEW + "SubscriptionGroupWrapper", OLD + "SubscriptionGroupWrapper");
        read(config, "consumerOffset.json", "org.apache.rocketmq.broker.offset.ConsumerOffsetManager", null);
        read(config, "delayOffset.json", "org.apache.rocketmq.broker.schedule.DelayOffsetSerializeWrapper",
            "org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper");
        read(config, "consumerFilter.json", "org.apache.rocketmq.broker.filter.ConsumerFilterManager", null);
        System.exit(0);
    }

    private static void read(Path config, String name, String className, String olderClassName) throws Exception {
        Class<?> kind;
        try {
            kind = Class.forName(className);
        } catch (ClassNotFoundException e) {
            kind = Class.forName(olderClassName);
        }
        String text = new String(Files.readAllBytes(config.resolve(name)), StandardCharsets.UTF_8);
        Object value = RemotingSerializable.fromJson(text, kind);
        byte[] line = ("METADATA " + name + " " + RemotingSerializable.toJson(value, false) + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
    }
}
