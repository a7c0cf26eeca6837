/** A field for files, which can be dropped or chosen. */
import { useId, useRef, useState } from 'preact/hooks';

interface DropProps {
  readonly label: string;
  readonly hint: string;
  readonly accept: string;
  readonly take: (files: readonly File[]) => void;
  readonly isBusy?: boolean;
}

export function Drop({ label, hint, accept, take, isBusy = false }: DropProps) {
  const [isOver, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  return (
    <div
      class={isOver ? 'drop over' : 'drop'}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        take([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <label for={id}>{label}</label>
      <input
        ref={input}
        id={id}
        type="file"
        accept={accept}
        disabled={isBusy}
        onChange={(event) => {
          take([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = '';
        }}
      />
      <p class="hint">{hint}</p>
    </div>
  );
}
