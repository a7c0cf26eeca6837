/**
 * For tests: a process that carries out one order on the card payments of a folder, and kills itself at
 * the given step. `<folder> <step> <order as JSON>`.
 */
import { type CardOrder, carryOut, openCardBooks } from './card-books.ts';

const [folder = '', dieAt = '', order = ''] = process.argv.slice(2);
const books = await openCardBooks(folder, (step) => {
  if (step === dieAt) process.kill(process.pid, 'SIGKILL');
});
// An order can be rejected, for example a refund of too much. The parent compares the money.
await carryOut(books, JSON.parse(order) as CardOrder).catch(() => undefined); // written by the parent
await books.close();
