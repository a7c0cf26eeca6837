/**
 * For tests: a process on the books of a folder that takes one payment, or sweeps, and kills itself
 * without warning at the step that it is told. `<folder> <step> [<header>]`.
 */
import { openBooks } from './payment-books.ts';

const [folder = '', dieAt = '', header] = process.argv.slice(2);
const books = await openBooks(folder, (step) => {
  if (step === dieAt) process.kill(process.pid, 'SIGKILL');
});
if (header === undefined) await books.payments.sweep();
else await books.payments.topUp(header).catch(() => undefined); // the parent asks the chain
await books.close();
