/**
 * For tests: a process that takes one payment, or sweeps, and kills itself without warning at the
 * step that it is told. Its settings come as one JSON argument.
 */
import { Fault } from '../../src/core/faults.ts';
import { nano } from '../../src/core/money.ts';
import { openFixture } from './payments.ts';
import type { CrashOrder } from './payments-crash.ts';

const order = JSON.parse(process.argv[2] ?? '{}') as CrashOrder; // written by the test that starts us
const fixture = await openFixture({
  settings: order.settings,
  folder: order.folder,
  onStep: (step) => {
    if (step === order.dieAt) process.kill(process.pid, 'SIGKILL');
  },
});
const { header, wanted } = order;
if (header === undefined) await fixture.payments.sweep();
else if (wanted === undefined) await paid(header);
else {
  const proof = { claim: undefined, idempotencyKey: undefined, path: '/x' };
  await (await fixture.payments.offer(header, proof)).take(nano(BigInt(wanted)));
}
// Reached only when the step never came: the test sees the exit code.
process.exit(3);

/** A chain may take longer than an answer waits: the same header again, as the answer says. */
async function paid(payment: string): Promise<void> {
  for (;;) {
    try {
      await fixture.payments.topUp(payment);
      return;
    } catch (error) {
      if (!(error instanceof Fault && error.code === 'SETTLEMENT_PENDING')) throw error;
    }
  }
}
