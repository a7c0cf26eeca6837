/** Forms in the drawer of an account: credit or debit, refund, and settings. */
import type { ComponentProps } from 'preact';
import { useState } from 'preact/hooks';
import { call, randomText } from '../api.ts';
import { usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { ActionForm, AmountField, Select, TextField, useForm } from '../parts/form.tsx';
import type { CardRefund, RefundState } from '../shapes.ts';
import type { ChangeProps } from './price-rules.tsx';

/** The reference makes a movement idempotent: a retry moves no money. */
function newReference(): string {
  return `console-${randomText()}`;
}

function ReferenceField(props: Omit<ComponentProps<typeof TextField>, 'label'>) {
  const hint = 'Your id of this transaction. A repeated reference moves no money.';
  return <TextField {...props} label="Reference" hint={hint} required />;
}

export function Movement({ account, path, changed }: ChangeProps) {
  const form = useForm({ kind: 'credit', amount: '', note: '', reference: newReference() });
  const { action, values, field } = form;
  const { kind, amount, note } = values;
  const move = (): void => {
    void action.run(async () => {
      const body = {
        amountUsd: amount,
        reference: values.reference,
        ...(note === '' ? {} : { note }),
      };
      const { data } = await call<{ data: { balanceUsd: string; isRepeat: boolean } }>(
        `${path}/${kind}`,
        { method: 'POST', body },
      );
      toast(
        data.isRepeat
          ? 'Nothing changed: a movement with this reference exists'
          : `${kind === 'credit' ? 'Credited' : 'Debited'} ${usdText(amount)}. The balance is ${usdText(data.balanceUsd)}`,
      );
      form.set({ amount: '', note: '', reference: newReference() });
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Credit or debit</summary>
      <ActionForm
        action={action}
        submit={move}
        label={`${kind === 'credit' ? 'Credit' : 'Debit'} ${account.name === '' ? 'the account' : account.name}`}
      >
        <Select
          {...field('kind')}
          label="Movement"
          options={[
            ['credit', 'Credit: add to the balance'],
            ['debit', 'Debit: take from the balance'],
          ]}
        />
        <AmountField {...field('amount', 'amountUsd')} label="USD" required />
        <ReferenceField {...field('reference')} />
        <TextField
          {...field('note')}
          label="Note"
          hint="Appears on the statement of the account."
          maxLength={200}
        />
      </ActionForm>
    </details>
  );
}

/** Pays credit of a wallet back in USDC. The reference makes a retry pay nothing. */
export function Refund({ account, path, changed }: ChangeProps) {
  const form = useForm({ amount: 'all', reference: newReference() });
  const { action, values, field } = form;
  const refund = (): void => {
    void action.run(async () => {
      const body = { amountUsd: values.amount.trim(), reference: values.reference };
      const { data } = await call<{ data: RefundState }>(`${path}/refund`, {
        method: 'POST',
        body,
      });
      toast(`Refund of ${usdText(data.amountUsd)}: ${data.failure ?? data.state}`);
      form.set({ reference: newReference() });
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Refund</summary>
      <ActionForm action={action} submit={refund} label="Pay back in USDC">
        <p class="hint">
          The wallet gets back at most {usdText(account.balance.availableUsd)}, without credit from
          payments that the chain can still revert. You cannot undo this.
        </p>
        <TextField
          {...field('amount', 'amountUsd')}
          label="Amount in USD"
          hint="Such as 4.50, or all."
          required
        />
        <ReferenceField {...field('reference')} />
      </ActionForm>
    </details>
  );
}

/** Pays credit from card payments back to these cards. The reference makes a retry pay nothing. */
export function RefundCards({ account, path, changed }: ChangeProps) {
  const form = useForm({ amount: 'all', debt: 'reject', reference: newReference() });
  const { action, values, field } = form;
  const refund = (): void => {
    void action.run(async () => {
      const body = {
        amountUsd: values.amount.trim(),
        reference: values.reference,
        allowDebt: values.debt === 'allow',
      };
      const { data } = await call<{ data: CardRefund }>(`${path}/card-refund`, {
        method: 'POST',
        body,
      });
      const states = data.refunds.map(
        ({ amountUsd, state, failure }) => `${usdText(amountUsd)}: ${failure ?? state}`,
      );
      toast(`Refund to cards of ${states.join(', ')}`);
      form.set({ reference: newReference() });
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Refund to cards</summary>
      <ActionForm action={action} submit={refund} label="Pay back to cards">
        <p class="hint">
          Credit from card payments goes back to the cards that paid, newest payment first. The
          account has {usdText(account.balance.availableUsd)}. You cannot undo this.
        </p>
        <div class="fields-row">
          <TextField
            {...field('amount', 'amountUsd')}
            label="Amount in USD"
            hint="Such as 4.50, or all."
            required
          />
          <Select
            {...field('debt')}
            label="Credit that was spent"
            options={[
              ['reject', 'Reject the refund'],
              ['allow', 'Pay back; the account owes it'],
            ]}
          />
        </div>
        <ReferenceField {...field('reference')} />
      </ActionForm>
    </details>
  );
}

interface SettingsProps extends ChangeProps {
  /** Names of all plans; empty until they are loaded. */
  readonly plans: readonly string[];
}

export function Settings({ account, path, changed, plans }: SettingsProps) {
  const { name, plan, disabled, balance } = account;
  const daily = String(Number(balance.dailyAllocation));
  // The values that the operator saw first: another operator can change the account meanwhile.
  const [seen, setSeen] = useState({ name, plan, daily });
  const { action, values, field } = useForm(seen);
  const save = (
    body: Readonly<Record<string, unknown>>,
    notice: string,
    saved?: () => void,
  ): void => {
    void action.run(async () => {
      await call(path, { method: 'PATCH', body });
      saved?.();
      toast(notice);
      changed();
    });
  };
  const submit = (): void => {
    const changes = {
      ...(values.name !== seen.name && { name: values.name.trim() }),
      ...(values.plan !== seen.plan && { plan: values.plan }),
      ...(values.daily !== seen.daily && { dailyDiem: Number(values.daily) }),
    };
    if (Object.keys(changes).length === 0) return toast('Nothing was changed');
    save(changes, 'The account was changed', () => setSeen(values));
  };
  const toggle = (): void =>
    save({ disabled: !disabled }, disabled ? 'The account is enabled' : 'The account is disabled');
  return (
    <details class="action">
      <summary>Settings</summary>
      <ActionForm
        action={action}
        submit={submit}
        label="Save"
        others={
          <button
            type="button"
            class={disabled ? '' : 'danger'}
            disabled={action.isRunning}
            onClick={toggle}
          >
            {disabled ? 'Enable' : 'Disable'}
          </button>
        }
      >
        <TextField {...field('name')} label="Name" required maxLength={100} />
        <div class="fields-row">
          <Select
            {...field('plan')}
            label="Plan"
            options={[...new Set([plan, ...plans])].map((one) => [one, one])}
          />
          <AmountField {...field('daily', 'dailyDiem')} label="Daily credit in USD" />
        </div>
      </ActionForm>
    </details>
  );
}
