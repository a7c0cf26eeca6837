/**
 * `farebox credit` and `farebox debit`: the operator's own money movements, posted like every
 * other. A reference makes one of them safe to repeat: the same reference moves money once.
 */
import type { Account } from '../identity/identity.ts';
import { type Nano, ZERO } from '../core/money.ts';
import { isUniqueViolation } from '../db/db.ts';
import { type Command, type Invocation, UsageError, printJson } from './command.ts';
import { amountNano, isGiven, shownUsd, textOption } from './values.ts';
import { type Desk, accountOf, withStores } from './with-stores.ts';

const OPTIONS = {
  account: { type: 'string' },
  note: { type: 'string' },
  reference: { type: 'string' },
} as const;

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
  options: OPTIONS,
  run: (invocation) => {
    const wanted = wantedMovement(invocation, 'credit');
    return withStores(invocation, (desk) => credit(invocation, desk, wanted));
  },
};

async function credit(
  invocation: Invocation,
  { stores, ids }: Desk,
  { amount, ...named }: Wanted,
): Promise<number> {
  const account = await accountOf(invocation, stores);
  const balance = await once(invocation, () =>
    stores.store.transaction((tx) =>
      stores.ledger.creditIn(tx, {
        accountId: account.id,
        amountNano: amount,
        from: 'house:operator-credit',
        kind: 'CREDIT',
        ...identityOf(named, 'credit', ids.uuid()),
      }),
    ),
  );
  report(invocation, account, { verb: 'added to', amount, balance });
  return 0;
}

export const debitCommand: Command = {
  name: 'debit',
  takesWords: true,
  summary: 'Take unspent credit back from an account',
  usage: 'debit <amount in USD> [--account <account>]',
  details: `${OPTION_HELP}

Takes what is posted and not held by a running request; never below zero.`,
  options: OPTIONS,
  run: (invocation) => {
    const wanted = wantedMovement(invocation, 'debit');
    return withStores(invocation, (desk) => debit(invocation, desk, wanted));
  },
};

async function debit(
  invocation: Invocation,
  { stores, ids }: Desk,
  { amount, ...named }: Wanted,
): Promise<number> {
  const account = await accountOf(invocation, stores);
  const balance = await once(invocation, () =>
    stores.store.transaction((tx) =>
      stores.ledger.debitIn(tx, {
        accountId: account.id,
        amountNano: amount,
        to: 'house:operator-credit',
        kind: 'CREDIT',
        ...identityOf(named, 'debit', ids.uuid()),
      }),
    ),
  );
  if (balance === undefined) {
    const { usdNano } = await stores.ledger.balances(account.id);
    throw new Error(
      `The account "${account.name}" has ${shownUsd(usdNano)} USD, less what running requests hold; take ${shownUsd(amount)} USD or less of what is free`,
    );
  }
  report(invocation, account, { verb: 'taken from', amount, balance });
  return 0;
}

function requireAmount({ positionals }: Invocation, command: 'credit' | 'debit'): Nano {
  const [text, ...rest] = positionals;
  if (text === undefined || rest.length > 0) throw new UsageError('Give one amount in USD');
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

/** What the words ask for; checked before anything is opened. */
interface Wanted {
  readonly amount: Nano;
  readonly note: string | undefined;
  readonly reference: string | undefined;
}

function wantedMovement(invocation: Invocation, command: 'credit' | 'debit'): Wanted {
  const amount = requireAmount(invocation, command);
  const note = textOption(invocation, 'note');
  const reference = textOption(invocation, 'reference');
  if (reference !== undefined && !REFERENCE.test(reference)) {
    throw new UsageError('--reference has 1 to 100 letters, digits, dots, colons or dashes');
  }
  if (note !== undefined && note.length > MAX_NOTE_CHARACTERS) {
    throw new UsageError(`--note has at most ${MAX_NOTE_CHARACTERS} characters`);
  }
  return { amount, note, reference };
}

function identityOf({ note, reference }: Omit<Wanted, 'amount'>, command: string, fresh: string) {
  return { id: `${command}-${reference ?? fresh}`, ...(note === undefined ? {} : { note }) };
}

async function once<T>(invocation: Invocation, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // The id of a movement is unique: a second one with the same reference changes nothing.
    if (!isUniqueViolation(error)) throw error;
    const reference = textOption(invocation, 'reference') ?? '';
    throw new Error(`The reference "${reference}" was posted before; nothing was changed`, {
      cause: error,
    });
  }
}

interface Movement {
  readonly verb: string;
  readonly amount: Nano;
  readonly balance: Nano;
}

function report(invocation: Invocation, account: Account, moved: Movement): void {
  const amount = shownUsd(moved.amount);
  const balance = shownUsd(moved.balance);
  if (isGiven(invocation, 'json')) {
    printJson(invocation, { accountId: account.id, amountUsd: amount, balanceUsd: balance });
    return;
  }
  invocation.console.stdout.write(
    `${amount} USD ${moved.verb} the account "${account.name}"; its balance is ${balance} USD\n`,
  );
}
