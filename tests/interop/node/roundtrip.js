// One small program around the unmodified Node client ali-ons; the tests read its SENT and GOT lines.
'use strict';

const httpclient = require('httpclient');
const { Consumer, Message, Producer } = require('ali-ons');

const quiet = { info() {}, warn() {}, debug() {}, error: (...args) => console.error(...args) };
const [mode, nameSrv, topic, group, countText] = process.argv.slice(2);
const count = Number(countText);
// What signs the requests, from the environment; nothing where nothing is set.
const keys = process.env.ROCKETMQ_ACCESS_KEY
  ? { accessKey: process.env.ROCKETMQ_ACCESS_KEY, secretKey: process.env.ROCKETMQ_SECRET_KEY }
  : {};

async function send() {
  const producer = new Producer({ ...keys, httpclient, nameSrv, producerGroup: group, logger: quiet });
  await producer.ready();
  for (let i = 0; i < count; i++) {
    const message = new Message(topic, i % 2 ? 'odd' : 'even', `node ${i}`);
    message.keys = [`n${i}`];
    if (mode === 'send-ordered') message.shardingKey = `key-${i % 5}`;
    if (mode === 'send-delayed') message.delayTimeLevel = 1;
    const result = await producer.send(message);
    console.log('SENT', result.sendStatus, result.msgId, result.messageQueue.queueId, String(result.queueOffset));
  }
  await producer.close();
}

async function consume() {
  const tags = mode === 'consume-tag' ? 'odd' : '*';
  const consumer = new Consumer({
    ...keys, httpclient, nameSrv, consumerGroup: group, logger: quiet,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  let refused = mode !== 'consume-retry';
  let left = count;
  const done = new Promise(resolve => {
    consumer.subscribe(topic, tags, async message => {
      if (!refused) {
        refused = true;
        return Consumer.ACTION_RETRY;
      }
      const late = Date.now() - message.bornTimestamp;
      console.log('GOT', message.queueId, String(message.queueOffset), message.reconsumeTimes, message.tags, late, String(message.body));
      if (--left === 0) resolve('done');
    });
  });
  const end = await Promise.race([done, new Promise(resolve => setTimeout(resolve, 90000, 'late'))]);
  if (end === 'late') console.log('MISSING', left);
  await consumer.close();
}

(mode.startsWith('send') ? send() : consume()).then(() => {
  console.log('END');
  process.exit(0);
}).catch(error => {
  console.error(error);
  process.exit(1);
});
