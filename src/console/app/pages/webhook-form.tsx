/** The form of a webhook, for creating and changing one. */
import { ActionForm, AmountField, PercentField, TextField, useForm } from '../parts/form.tsx';
import type { Thresholds, Webhook } from '../shapes.ts';

const EVENT_OF: Readonly<Record<keyof Thresholds, string>> = {
  balanceUsd: 'balance.low',
  keyLimitPercent: 'key.limit_reached',
  budgetPercent: 'budget.limit_reached',
  dailySpendUsd: 'spend.daily',
};

/** Returns the thresholds that are set, and their events. */
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
  const initial = (name: keyof Thresholds): string => String(given?.thresholds[name] ?? '');
  const { action, values, field } = useForm({
    url: given?.url ?? '',
    balanceUsd: initial('balanceUsd'),
    keyLimitPercent: initial('keyLimitPercent'),
    budgetPercent: initial('budgetPercent'),
    dailySpendUsd: initial('dailySpendUsd'),
  });
  const submit = (): void => {
    const number = (name: keyof Thresholds): number | null =>
      values[name].trim() === '' ? null : Number(values[name]);
    void action.run(() =>
      save(values.url.trim(), {
        balanceUsd: number('balanceUsd'),
        keyLimitPercent: number('keyLimitPercent'),
        budgetPercent: number('budgetPercent'),
        dailySpendUsd: number('dailySpendUsd'),
      }),
    );
  };
  const threshold = (name: keyof Thresholds) => field(name, `thresholds.${name}`);
  return (
    <ActionForm action={action} submit={submit} label={given === undefined ? 'Create' : 'Save'}>
      <TextField
        {...field('url')}
        label="URL"
        hint="A public http or https URL that accepts POST requests."
        required
      />
      <h3>Send a message at</h3>
      <div class="fields-row">
        <AmountField {...threshold('balanceUsd')} label="Balance below, in USD" />
        <AmountField {...threshold('dailySpendUsd')} label="Daily spending, in USD" />
      </div>
      <div class="fields-row">
        <PercentField {...threshold('keyLimitPercent')} label="Used cap of a key, in percent" />
        <PercentField {...threshold('budgetPercent')} label="Used budget, in percent" />
      </div>
      <p class="hint">
        Leave a field empty to send no message. Choose 90 percent or less for caps and budgets,
        because requests can be rejected before the last percent is used.
      </p>
    </ActionForm>
  );
}
