/**
 * `farebox credit` and `farebox debit`: the operator's own money movements, posted like every
 * other. A reference makes one of them safe to repeat: the same movement is told again and moves
 * nothing, another one under its name is refused.
 */
import { type Nano, ZERO } from '../core/money.ts';
import {
  type Command,
  type Invocation,
  UsageError,
  amountNano,
  findAccount,
  openedAccount,
  shownUsd,
  withStores,
} from './command.ts';

const MAX_NOTE_CHARACTERS = 200;
const REFERENCE = /^[A-Za-z0-9._:-]{1,100}$/;

const OPTION_HELP = `
  --account <account>      whose balance: an id, a name or a wallet address (default: the owner)
  --note <text>            shown in the account's transactions
  --reference <text>       your own id of this movement: repeated with the same amount it changes nothing`;

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

function move(invocation: Invocation, direction: 'credit' | 'debit'): Promise<void> {
  const { amount, note, reference } = wantedMovement(invocation, direction);
  return withStores(invocation, async ({ stores, ids }) => {
    const { ledger } = stores;
    const find = direction === 'credit' ? openedAccount : findAccount;
    const account = await find(stores, invocation.text('account'));
    const answer = await ledger.moveOnce({
      direction,
      accountId: account.id,
      amountNano: amount,
      reference: reference ?? ids.uuid(),
      note,
    });
    if (answer.state === 'insufficient') {
      const { usdNano } = await ledger.balances(account.id);
      throw new Error(
        `The account "${account.name}" has ${shownUsd(usdNano)} USD, less what running requests hold; take ${shownUsd(amount)} USD or less of what is free`,
      );
    }
    if (answer.state === 'reused') {
      const { accountId, amountNano } = answer.was;
      throw new Error(
        `The reference "${reference ?? ''}" stands for a ${direction} of ${shownUsd(amountNano)} USD to ${accountId}; nothing was changed. Give this movement a reference of its own`,
      );
    }
    const isRepeat = answer.state === 'repeated';
    const [amountUsd, balanceUsd] = [shownUsd(amount), shownUsd(answer.balanceNano)];
    const verb = direction === 'credit' ? 'added to' : 'taken from';
    invocation.answer(
      () => ({ accountId: account.id, amountUsd, balanceUsd, isRepeat }),
      () =>
        isRepeat
          ? `${amountUsd} USD were ${verb} the account "${account.name}" under this reference before; its balance was ${balanceUsd} USD then, and nothing was changed now\n`
          : `${amountUsd} USD ${verb} the account "${account.name}"; its balance is ${balanceUsd} USD\n`,
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
