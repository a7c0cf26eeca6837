/** Results of several nodes, and the agreement that a payment needs. */
import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import type { LogLine } from '../../test/support/memory-log.ts';
import { memoryLog } from '../../test/support/memory-log.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { Agreement } from './nodes.ts';
import { Contradictions } from './chain-log.ts';
import type { Evidence } from './rail.ts';

const PAID: Evidence = { kind: 'paid', transaction: '0x1', height: 7n, isConfirmed: true };
const OPEN: Evidence = { kind: 'open', attempt: 'waiting' };
const FINAL: Evidence = { kind: 'final', reason: 'authorization_cancelled', isConfirmed: true };

/** A node of the test: what it reports, when, and how old its newest block is. */
interface Node {
  readonly evidence: Evidence | Error;
  readonly afterMs?: number;
  readonly behindSeconds?: number;
}

describe('the agreement of nodes', () => {
  let clock: TestClock;
  let contradictions: Contradictions;
  const log: LogLine[] = [];

  beforeEach(() => {
    clock = new TestClock();
    log.length = 0;
    contradictions = new Contradictions(memoryLog(log), ['net']);
  });

  /** Queries the nodes, while the given time passes. */
  async function ask(nodes: readonly Node[], passesMs = 0): Promise<Evidence> {
    const agreement = new Agreement<Node>({
      network: 'net',
      nodes,
      clock,
      contradictions,
      newestSeconds: async ({ behindSeconds = 0 }) => clock.nowMs() / 1_000 - behindSeconds,
    });
    const answer = agreement.evidence(async ({ evidence, afterMs = 0 }) => {
      if (afterMs > 0) await clock.sleep(afterMs);
      if (evidence instanceof Error) throw evidence;
      return evidence;
    });
    answer.catch(() => undefined); // awaited below
    for (let ms = 0; ms < passesMs; ms += 1_000) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(1_000);
    }
    return await answer;
  }

  test('one node alone decides', async () => {
    assert.deepEqual(await ask([{ evidence: PAID }]), PAID);
  });

  test('two nodes that agree are trusted, with the smaller of their depths', async () => {
    const shallow: Evidence = { ...PAID, height: 8n, isConfirmed: false };
    assert.deepEqual(await ask([{ evidence: PAID }, { evidence: shallow }]), shallow);
    const unsure: Evidence = { ...FINAL, isConfirmed: false };
    assert.deepEqual(await ask([{ evidence: FINAL }, { evidence: unsure }]), unsure);
  });

  test('the second report is awaited, however slow its node is', async () => {
    const slow = { evidence: OPEN, afterMs: 12_000 };
    await assert.rejects(ask([{ evidence: PAID }, slow], 20_000), /contradict/);
    const agreeing = { evidence: PAID, afterMs: 12_000 };
    assert.deepEqual(await ask([{ evidence: PAID }, agreeing], 20_000), PAID);
  });

  test('one report of several nodes is not enough', async () => {
    const down = { evidence: new Error('down') };
    for (const evidence of [PAID, OPEN, FINAL]) {
      await assert.rejects(ask([{ evidence }, down]), /Only 1 of 2 nodes returned/);
    }
    await assert.rejects(ask([down, down]), /down/);
    assert.equal(contradictions.counts.get('net'), 0);
  });

  test('a third node that contradicts counts in time and is ignored later', async () => {
    const pair = [{ evidence: PAID }, { evidence: PAID }];
    await assert.rejects(ask([...pair, { evidence: OPEN, afterMs: 1_000 }], 5_000), /contradict/);
    assert.deepEqual(await ask([...pair, { evidence: OPEN, afterMs: 3_000 }], 5_000), PAID);
  });

  test('a contradiction is logged and counted', async () => {
    await assert.rejects(ask([{ evidence: PAID }, { evidence: FINAL }]), /contradict/);
    assert.equal(contradictions.counts.get('net'), 1);
    assert.deepEqual(
      log.map(({ level, message, fields }) => [level, message, fields]),
      [['warn', 'The nodes contradict each other about a payment', { network: 'net' }]],
    );
  });

  test('a node that lags neither contradicts nor confirms the others', async () => {
    const lagging = { evidence: OPEN, behindSeconds: 61 };
    const pair = [{ evidence: PAID }, { evidence: PAID }];
    assert.deepEqual(await ask([lagging, ...pair]), PAID);
    await assert.rejects(ask([lagging, { evidence: PAID }]), /Only 1 of 2 nodes returned/);
    assert.equal(contradictions.counts.get('net'), 0);
  });
});
