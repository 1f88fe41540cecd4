'use strict';
// Sends, consumes by tag, and asks for one message again; prints what it saw as one line of JSON.
const { Consumer, Message, Producer } = require('ali-ons');

const [nameSrv, topic, group] = process.argv.slice(2);
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const httpclient = {}; // only for finding name servers by HTTP
const options = { nameSrv, logger, httpclient };

async function send() {
  const producer = new Producer({ ...options, producerGroup: `${group}_producer` });
  await producer.ready();
  const statuses = [];
  for (let number = 0; number < 5; number++) {
    const message = new Message(topic, number % 2 ? 'red' : 'green', `node-${number}`);
    message.keys = [`node-key-${number}`];
    message.properties.shade = 'dark';
    statuses.push((await producer.send(message)).sendStatus);
  }
  await producer.close();
  return statuses;
}

async function receive(wanted) {
  const consumer = new Consumer({ ...options, consumerGroup: group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
  const received = new Map();
  await new Promise(resolve => {
    consumer.subscribe(topic, 'green', async message => {
      const { tags, keys, reconsumeTimes, properties } = message;
      const body = message.body.toString();
      received.set(`${body} ${reconsumeTimes}`, { body, tags, keys, reconsumeTimes, shade: properties.shade });
      if (received.size === wanted) resolve();
      return body === 'node-2' && reconsumeTimes === 0 ? Consumer.ACTION_RETRY : undefined;
    });
  });
  await consumer.close();
  return [...received.values()];
}

(async () => {
  const sent = await send();
  const received = await receive(4); // three green ones, and one of them again
  console.log(JSON.stringify({ sent, received }));
})().then(() => process.exit(0), problem => {
  console.error(problem);
  process.exit(1);
});
