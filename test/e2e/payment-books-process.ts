/**
 * For tests: a process on the books of a folder that takes one payment, or sweeps, and kills itself
 * without warning at the step that it is told. `<folder> <step> [<header> <nano-USD wanted of it>]`.
 */
import { nano } from '../../src/core/money.ts';
import { openBooks, take } from './payment-books.ts';

const [folder = '', dieAt = '', header, wanted = ''] = process.argv.slice(2);
const books = await openBooks(folder, (step) => {
  if (step === dieAt) process.kill(process.pid, 'SIGKILL');
});
if (header === undefined) await books.payments.sweep();
else await take(books, { header, wanted: nano(BigInt(wanted)) }).catch(() => undefined); // the parent asks the chain
await books.close();
