/** Where and when a webhook tells, as a form for a new one and for one that is there. */
import { ActionForm, AmountField, PercentField, TextField, useForm } from '../parts/form.tsx';
import type { Thresholds, Webhook } from '../shapes.ts';

const EVENT_OF: Readonly<Record<keyof Thresholds, string>> = {
  balanceUsd: 'balance.low',
  keyLimitPercent: 'key.limit_reached',
  budgetPercent: 'budget.limit_reached',
  dailySpendUsd: 'spend.daily',
};

/** The thresholds that are given, with their events. */
export function withEvents(thresholds: Thresholds) {
  const given = Object.entries(EVENT_OF).filter(
    ([name]) => thresholds[name as keyof Thresholds] !== null, // a name of the table
  );
  return {
    events: given.map(([, event]) => event),
    thresholds: Object.fromEntries(
      given.map(([name]) => [name, thresholds[name as keyof Thresholds]]), // as above
    ),
  };
}

interface WebhookFormProps {
  readonly given?: Webhook;
  readonly save: (url: string, thresholds: Thresholds) => Promise<void>;
}

export function WebhookForm({ given, save }: WebhookFormProps) {
  const text = (value: number | null | undefined): string => String(value ?? '');
  const { action, values, field } = useForm({
    url: given?.url ?? '',
    balanceUsd: text(given?.thresholds.balanceUsd),
    keyLimitPercent: text(given?.thresholds.keyLimitPercent),
    budgetPercent: text(given?.thresholds.budgetPercent),
    dailySpendUsd: text(given?.thresholds.dailySpendUsd),
  });
  const submit = (): void => {
    const number = (value: string): number | null => (value.trim() === '' ? null : Number(value));
    const { url, balanceUsd, keyLimitPercent, budgetPercent, dailySpendUsd } = values;
    void action.run(() =>
      save(url.trim(), {
        balanceUsd: number(balanceUsd),
        keyLimitPercent: number(keyLimitPercent),
        budgetPercent: number(budgetPercent),
        dailySpendUsd: number(dailySpendUsd),
      }),
    );
  };
  const threshold = (name: keyof Thresholds) => field(name, `thresholds.${name}`);
  return (
    <ActionForm action={action} submit={submit} does={given === undefined ? 'Create' : 'Save'}>
      <TextField
        {...field('url')}
        label="Address"
        hint="A public http or https address that takes a POST."
        required
      />
      <h3>When it is told</h3>
      <div class="fields-row">
        <AmountField {...threshold('balanceUsd')} label="Balance below, in USD" />
        <AmountField {...threshold('dailySpendUsd')} label="Spending of a day, in USD" />
      </div>
      <div class="fields-row">
        <PercentField {...threshold('keyLimitPercent')} label="Used of a key's cap, in percent" />
        <PercentField {...threshold('budgetPercent')} label="Used of a budget, in percent" />
      </div>
      <p class="hint">
        What is empty is not told. With 90 percent a message comes in time; a request that does not
        fit is refused before a cap is used to its last cent.
      </p>
    </ActionForm>
  );
}
