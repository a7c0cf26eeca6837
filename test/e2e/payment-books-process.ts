/**
 * For tests: a process that receives one payment, or runs the sweep, on the books of a folder, and
 * kills itself at the given step. `<folder> <step> [<header> <nano-USD of the request>]`.
 */
import { nano } from '../../src/core/money.ts';
import { openBooks, take } from './payment-books.ts';

const [folder = '', dieAt = '', header, wanted = ''] = process.argv.slice(2);
const books = await openBooks(folder, (step) => {
  if (step === dieAt) process.kill(process.pid, 'SIGKILL');
});
if (header === undefined) await books.payments.sweep();
else await take(books, { header, wanted: nano(BigInt(wanted)) }).catch(() => undefined); // the parent checks the chain
await books.close();
