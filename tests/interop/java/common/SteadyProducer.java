import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends numbered messages, one after another, until its standard input ends. Usage: SteadyProducer NAMESRV GROUP TOPIC;
 * it prints the number of each message that was acknowledged, and goes on after any error.
 */
public final class SteadyProducer {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(1000);
        producer.start();
        Thread sending = new Thread(() -> {
            for (int number = 0; ; number++) {
                try {
                    byte[] body = ("body " + number).getBytes(StandardCharsets.UTF_8);
                    SendResult result = producer.send(new Message(args[2], body));
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        System.out.println("body " + number);
                    }
                    Thread.sleep(20);
                } catch (InterruptedException error) {
                    return;
                } catch (Exception error) {
                    System.err.println(error.getMessage());
                }
            }
        });
        sending.setDaemon(true);
        sending.start();
        System.in.readAllBytes(); // returns when whoever started this closes it
        sending.interrupt();
        producer.shutdown();
        System.exit(0);
    }

    private SteadyProducer() {}
}
