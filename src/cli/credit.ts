/**
 * `farebox credit` and `farebox debit`: the operator's own money movements, posted like every
 * other. A reference makes one of them safe to repeat: the same reference moves money once.
 */
import { type Nano, ZERO } from '../core/money.ts';
import { isUniqueViolation } from '../db/db.ts';
import {
  type Command,
  type Invocation,
  UsageError,
  amountNano,
  findAccount,
  shownUsd,
  withStores,
} from './command.ts';

const MAX_NOTE_CHARACTERS = 200;
const REFERENCE = /^[A-Za-z0-9._:-]{1,100}$/;

const OPTION_HELP = `
  --account <id or name>   whose balance (default: the owner)
  --note <text>            shown in the account's transactions
  --reference <text>       your own id of this movement: the same one is never posted twice`;

export const creditCommand: Command = {
  name: 'credit',
  takesWords: true,
  summary: 'Add prepaid credit to an account',
  usage: 'credit <amount in USD> [--account <account>]',
  details: `${OPTION_HELP}

Example: farebox credit 25 --account alice --reference invoice-118`,
  run: (invocation) => move(invocation, 'credit'),
};

export const debitCommand: Command = {
  name: 'debit',
  takesWords: true,
  summary: 'Take unspent credit back from an account',
  usage: 'debit <amount in USD> [--account <account>]',
  details: `${OPTION_HELP}

Takes what is posted and not held by a running request; never below zero.`,
  run: (invocation) => move(invocation, 'debit'),
};

function move(invocation: Invocation, command: 'credit' | 'debit'): Promise<void> {
  const { amount, note, reference } = wantedMovement(invocation, command);
  return withStores(invocation, async ({ stores, ids }) => {
    const { store, ledger } = stores;
    const account = await findAccount(stores, invocation.text('account'));
    const movement = {
      id: `${command}-${reference ?? ids.uuid()}`,
      accountId: account.id,
      amountNano: amount,
      kind: 'CREDIT',
      ...(note === undefined ? {} : { note }),
    } as const;
    const house = 'house:operator-credit';
    const balance = await once(reference, () =>
      store.transaction((tx) =>
        command === 'credit'
          ? ledger.creditIn(tx, { ...movement, from: house })
          : ledger.debitIn(tx, { ...movement, to: house }),
      ),
    );
    if (balance === undefined) {
      const { usdNano } = await ledger.balances(account.id);
      throw new Error(
        `The account "${account.name}" has ${shownUsd(usdNano)} USD, less what running requests hold; take ${shownUsd(amount)} USD or less of what is free`,
      );
    }
    const [amountUsd, balanceUsd] = [shownUsd(amount), shownUsd(balance)];
    const verb = command === 'credit' ? 'added to' : 'taken from';
    invocation.answer(
      () => ({ accountId: account.id, amountUsd, balanceUsd }),
      () =>
        `${amountUsd} USD ${verb} the account "${account.name}"; its balance is ${balanceUsd} USD\n`,
    );
  });
}

/** What the words ask for; checked before anything is opened. */
function wantedMovement(invocation: Invocation, command: 'credit' | 'debit') {
  const amount = wantedAmount(invocation, command);
  const note = invocation.text('note');
  const reference = invocation.text('reference');
  if (reference !== undefined && !REFERENCE.test(reference)) {
    throw new UsageError('--reference has 1 to 100 letters, digits, dots, colons or dashes');
  }
  if (note !== undefined && note.length > MAX_NOTE_CHARACTERS) {
    throw new UsageError(`--note has at most ${MAX_NOTE_CHARACTERS} characters`);
  }
  return { amount, note, reference };
}

function wantedAmount(invocation: Invocation, command: 'credit' | 'debit'): Nano {
  const text = invocation.only('Give one amount in USD');
  if (/^-[\d.]/.test(text)) {
    const other = command === 'credit' ? 'debit' : 'credit';
    throw new UsageError(
      `The amount must be above zero; use "farebox ${other} ${text.slice(1)}" for the other direction`,
    );
  }
  const amount = amountNano(text, 'The amount');
  if (amount > ZERO) return amount;
  throw new UsageError('The amount must be above zero');
}

async function once<T>(reference: string | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // The id of a movement is unique: a second one with the same reference changes nothing.
    if (!isUniqueViolation(error)) throw error;
    throw new Error(`The reference "${reference ?? ''}" was posted before; nothing was changed`, {
      cause: error,
    });
  }
}
