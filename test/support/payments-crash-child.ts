/**
 * For tests: a process that receives one payment, or runs the sweep, and kills itself at the given
 * step. Its settings are one JSON argument.
 */
import { nano } from '../../src/core/money.ts';
import { openFixture, paidAtLast, repeatPending } from './payments.ts';
import type { CrashOrder } from './payments-crash.ts';

const order = JSON.parse(process.argv[2] ?? '{}') as CrashOrder; // set by the test that starts the process
const fixture = await openFixture({
  settings: order.settings,
  folder: order.folder,
  onStep: (step) => {
    if (step === order.dieAt) process.kill(process.pid, 'SIGKILL');
  },
});
const { header, wanted } = order;
if (header === undefined) await fixture.payments.sweep();
else if (wanted === undefined) await paidAtLast(fixture, header);
else {
  const proof = { claim: undefined, idempotencyKey: undefined, path: '/x', clientAddress: '' };
  await repeatPending(async () => {
    const offered = await fixture.payments.headers.offer(header, proof);
    await offered.take(nano(BigInt(wanted)));
  });
}
// Reached only if the step never came: the test checks the exit code.
process.exit(3);
