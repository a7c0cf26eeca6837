/**
 * For tests: a process that takes one payment, or sweeps, and kills itself without warning at the
 * step that it is told. Its settings come as one JSON argument.
 */
import { nano } from '../../src/core/money.ts';
import { openRig } from './payments.ts';
import type { CrashOrder } from './payments-crash.ts';

const order = JSON.parse(process.argv[2] ?? '{}') as CrashOrder; // written by the test that starts us
const rig = await openRig({
  settings: order.settings,
  folder: order.folder,
  onStep: (step) => {
    if (step === order.dieAt) process.kill(process.pid, 'SIGKILL');
  },
});
const { header, wanted } = order;
if (header === undefined) await rig.payments.sweep();
else if (wanted === undefined) await rig.payments.topUp(header);
else {
  const proof = { claim: undefined, idempotencyKey: undefined, path: '/x' };
  await (await rig.payments.offer(header, proof)).take(nano(BigInt(wanted)));
}
// Reached only when the step never came: the test sees the exit code.
process.exit(3);
