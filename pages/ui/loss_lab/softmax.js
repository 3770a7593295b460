// Batch-softmax loss of a small batch, cell by cell: a copy of bsc_core/losses/explain.py, compared with it by a browser
// test. Matrices are arrays of rows; masks are arrays of rows of booleans.

const DIRECTIONS = ["query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc"];
const SAME_SIDE = { queries: "query_to_query", documents: "doc_to_doc" }; // directions within a side
const SMALLEST_RANGE = 1e-6;
const TIE = 1e-6; // cosines this close above the limit of a mask count as equal to it
const RELATIVE_TIE = 1e-6, ABSOLUTE_TIE = 1e-12;

const matrix = (height, width, value) =>
  Array.from({ length: height }, (_, i) => Array.from({ length: width }, (_, j) => value(i, j)));
// The batch that Python sent, with its vectors as rows.
const batchOf = (data) => ({ ...data, queries: rowsOf(data.queries), documents: rowsOf(data.documents) });
const transpose = (rows) => matrix(rows.length ? rows[0].length : 0, rows.length, (i, j) => rows[j][i]);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (left, right) => left.reduce((sum, value, d) => sum + value * right[d], 0);
// The index of the largest value; of values that differ by rounding alone, the lowest index.
function firstLargest(values) {
  const largest = Math.max(...values);
  return values.findIndex((value) => value >= largest - RELATIVE_TIE * Math.abs(largest) - ABSOLUTE_TIE);
}

// The directions of the settings, by `symmetric` unless they name them.
const directionsOf = ({ directions, symmetric }) => (directions?.length
  ? DIRECTIONS.filter((name) => directions.includes(name)) : DIRECTIONS.slice(0, symmetric ? 2 : 1));
const isJoint = (settings) => settings.partition === "joint" && directionsOf(settings).length > 1;

const inverse = (size, smallest) => (size > smallest ? 1 / size : 0);

function normalize(vectors, normalization) {
  if (normalization === "none") return vectors;
  if (normalization === "l2") {
    return vectors.map((row) => {
      const scale = inverse(Math.sqrt(dot(row, row)), 0);
      return row.map((value) => value * scale);
    });
  }
  const smallest = SMALLEST_RANGE * Math.max(...vectors.flat().map(Math.abs));
  const columns = transpose(vectors).map((column) => {
    if (normalization === "l2_columns") {
      const scale = inverse(Math.sqrt(dot(column, column)), smallest);
      return column.map((value) => value * scale);
    }
    const lowest = Math.min(...column);
    const scale = inverse(Math.max(...column) - lowest, smallest);
    const shift = normalization === "minmax_columns" ? lowest : 0;
    return column.map((value) => (value - shift) * scale);
  });
  return transpose(columns);
}

// Masks of the positives and the candidates of each anchor, from the text ids of both sides.
function masks(settings, positive, anchorIds, candidateIds) {
  const pairs = positive.length;
  const isIncluded = positive.map((value) => settings.labeled_negatives || value);
  const isFirst = candidateIds.map((text, j) => candidateIds.findIndex((other, k) => other === text && isIncluded[k]) === j);
  const isSame = (i, j) => candidateIds[i] === candidateIds[j];
  const positives = matrix(pairs, pairs, (i, j) => {
    if (!positive[i]) return false;
    if (settings.duplicates !== "multi_positive") return i === j;
    return isSame(i, j) || (anchorIds[i] === anchorIds[j] && positive[j]);
  });
  const candidates = matrix(pairs, pairs, (i, j) => {
    if (positives[i][j]) return true;
    return settings.duplicates === "merge" ? isFirst[j] && !isSame(i, j) : isIncluded[j];
  });
  return { positives, candidates };
}

const treatsNegatives = (settings) => settings.mask !== "none" || settings.hardness === "in_batch_negatives"
  || settings.decoupled || settings.debiased_prior > 0;

// Similarity to the anchor above which the mask excludes a negative, for each pair. compared: cosines of the trained
// or the guide model.
const maskLimits = (compared, { mask, mask_margin: margin, mask_margin_kind: kind }) => compared.map((row, i) =>
  (mask === "none" ? Infinity : row[i] - margin * (kind === "relative" ? Math.abs(row[i]) : 1)));

// Removes from the candidates what the false-negative mask excludes; returns the cells that it excluded by their cosine.
// compared: cosines of the trained or the guide model. labeled: the label of a cell, null if it has none.
function applyMask({ positives, candidates }, compared, limits, labeled) {
  const pairs = compared.length;
  return matrix(pairs, pairs, (i, j) => {
    if (positives[i][j] || !candidates[i][j]) return false;
    const label = labeled(i, j);
    const isExcluded = label === null && compared[i][j] > limits[i] + TIE;
    if (label === true || isExcluded) candidates[i][j] = false;
    return isExcluded;
  });
}

// One softmax of each anchor over the cells of one direction or of several; the loss has the positives of the first.
// Returns the losses, the effective negatives, and each direction with its probability (the derivative of the log
// denominator by a logit) and push (the gradient of the summed losses by the logits).
function softmax(parts, settings) {
  const prior = settings.debiased_prior ?? 0, withoutPositives = Boolean(settings.decoupled) || prior > 0;
  const isTreated = treatsNegatives(settings) || parts.length > 1, pairs = parts[0].logits.length;
  const losses = [], counted = [], effective = [];
  const directions = parts.map((part) => ({ ...part, losses, counted, probability: [], target: [], push: [] }));
  for (let i = 0; i < pairs; i++) {
    const joined = (name) => parts.flatMap((part) => part[name][i]);
    const [logits, isPositive, isCandidate] = ["weighted", "positives", "candidates"].map(joined);
    const isNegative = isCandidate.map((value, j) => value && !isPositive[j]);
    const included = withoutPositives ? isNegative : isCandidate;
    const highest = Math.max(...logits.filter((_, j) => included[j]));
    const exponentials = logits.map((value, j) => (included[j] ? Math.exp(value - highest) : 0));
    const sum = total(exponentials);
    let p = exponentials.map((value) => (sum > 0 ? value / sum : 0)), logSum = Math.log(sum) + highest;
    const positiveCount = parts[0].positives[i].filter(Boolean).length;
    const negativeCount = isNegative.filter(Boolean).length;
    const target = isPositive.map((value, j) => (value && j < pairs ? 1 / positiveCount : 0));
    const positiveLogit = total(logits.map((value, j) => (target[j] ? value * target[j] : 0)));
    if (prior) ({ logSum, p } = debiased(logSum, p, positiveLogit, isPositive, negativeCount, settings));
    const counts = positiveCount > 0 && !(isTreated && !negativeCount); // a row that lost all negatives gives 0
    counted.push(counts);
    losses.push(counts ? logSum - positiveLogit : 0);
    directions.forEach((direction, number) => {
      const part = (values) => values.slice(number * pairs, (number + 1) * pairs);
      direction.probability.push(part(p));
      direction.target.push(part(target));
      direction.push.push(part(p.map((value, j) => (counts ? value - target[j] : 0))));
    });
    const negatives = p.filter((_, j) => isNegative[j]), mass = total(negatives);
    if (!positiveCount || !(mass > 0)) continue;
    const shares = negatives.map((value) => value / mass);
    effective.push(Math.exp(-total(shares.map((share) => (share > 0 ? share * Math.log(share) : 0)))));
  }
  return { losses, directions, effective: effective.length ? total(effective) / effective.length : 0 };
}

// The logarithm of the debiased denominator and its derivatives by the logits.
function debiased(logSum, p, positiveLogit, isPositive, count, { debiased_prior: prior, temperature, decoupled }) {
  const copies = Math.max(1, isPositive.filter(Boolean).length); // of the positive, one for each direction
  const target = isPositive.map((value) => (value ? 1 / copies : 0)), ofPositives = positiveLogit + Math.log(copies);
  const number = Math.max(1, count), mean = logSum - Math.log(number);
  const part = Math.exp(Math.min(0, Math.log(prior) + positiveLogit - mean)); // expected share of the positives
  const estimate = mean + Math.log1p(-part) - Math.log1p(-prior), lowest = -1 / temperature;
  const above = count > 0 && part < 1 && estimate > lowest;
  const result = Math.log(number) + (above ? estimate : lowest);
  const slopes = p.map((value, j) => (above ? (value - part * target[j]) / (1 - part) : 0));
  if (decoupled) return { logSum: result, p: slopes };
  const highest = Math.max(result, ofPositives);
  const sum = highest + Math.log(Math.exp(result - highest) + Math.exp(ofPositives - highest));
  const share = Math.exp(result - sum);
  return { logSum: sum, p: slopes.map((slope, j) => share * slope + (1 - share) * target[j]) };
}

// Similarities and masks of each direction: all that the temperature does not change, kept for each batch by the other
// settings.
const prepared = new WeakMap();
function prepare(batch, settings) {
  const key = JSON.stringify({ ...settings, temperature: 0 });
  if (!prepared.has(batch)) prepared.set(batch, {});
  return (prepared.get(batch)[key] ??= compute());

  function compute() {
    const positive = batch.labels.map((label) => label > settings.threshold), pairs = positive.length;
    const names = directionsOf(settings);
    const products = (normalization) => {
      const [queries, documents] = [batch.queries, batch.documents].map((vectors) => normalize(vectors, normalization));
      const of = (left, right) => matrix(pairs, pairs, (i, j) => dot(left[i], right[j]));
      return {
        query_to_doc: of(queries, documents),
        ...(names.includes("query_to_query") && { query_to_query: of(queries, queries) }),
        ...(names.includes("doc_to_doc") && { doc_to_doc: of(documents, documents) }),
      };
    };
    const similarities = products(settings.normalization);
    const cosines = settings.normalization === "l2" ? similarities : products("l2");
    const guide = settings.mask === "guide" ? batch.guide : cosines, limits = maskLimits(guide.query_to_doc, settings);
    const strength = settings.hardness === "in_batch_negatives" ? settings.hardness_strength : 0;
    const weight = (i, j) => (i === j ? 0 : strength * cosines.query_to_doc[i][j]);
    const bumps = strength ? matrix(pairs, pairs, weight) : null;
    const { query_ids: queries, document_ids: documents } = batch;
    // The label of a cell off the diagonal whose texts are a pair of the batch, null if they are none.
    const label = (i, j) => {
      if (settings.mask === "none") return null;
      const rows = positive.filter((_, k) => queries[k] === queries[i] && documents[k] === documents[j]);
      return rows.length ? rows.some(Boolean) : null;
    };
    const isCopyLeft = settings.mask === "none" && settings.duplicates === "keep"; // as a candidate of an equal text
    const withinSide = (ids) => ({
      positives: matrix(pairs, pairs, () => false),
      candidates: matrix(pairs, pairs, (i, j) =>
        i !== j && (isCopyLeft || ids[i] !== ids[j]) && (settings.labeled_negatives || positive[j])),
    });
    const build = {
      query_to_doc: () => ({ ...masks(settings, positive, queries, documents), label, bumps }),
      doc_to_query: () => ({ ...masks(settings, positive, documents, queries), label: (i, j) => label(j, i) }),
      query_to_query: () => withinSide(queries),
      doc_to_doc: () => withinSide(documents),
    };
    const cells = names.map((name) => {
      const [similarity, compared] = [similarities, guide].map((values) =>
        (name === "doc_to_query" ? transpose(values.query_to_doc) : values[name]));
      const { label: labelOf = () => null, ...direction } = build[name]();
      const masked = applyMask(direction, compared, limits, labelOf);
      return { name, similarity, compared, limits, ...direction, masked };
    });
    return { similarity: similarities.query_to_doc, positive, cells };
  }
}

// All values of the panels. batch: queries, documents, labels, query_ids, document_ids; settings: of the lab.
function explainBatch(batch, settings) {
  const pairs = batch.queries.length, { similarity, positive, cells } = prepare(batch, settings);
  const parts = cells.map((part) => {
    const { positives, candidates, bumps } = part;
    const logits = part.similarity.map((row) => row.map((value) => value / settings.temperature));
    const weight = (value, i, j) => value + (bumps && candidates[i][j] && !positives[i][j] ? bumps[i][j] : 0);
    return { ...part, logits, weighted: logits.map((row, i) => row.map((value, j) => weight(value, i, j))) };
  });
  const terms = (isJoint(settings) ? [parts] : parts.map((part) => [part])).map((group) => softmax(group, settings));
  const directions = Object.fromEntries(terms.flatMap((term) => term.directions).map((one) => [one.name, one]));
  const { query_to_doc: rows, doc_to_query: columns = null } = directions;
  const all = settings.average === "batch" && settings.labeled_negatives;
  const count = all ? pairs : Math.max(1, positive.filter(Boolean).length);
  const weight = settings.reduction === "mean" ? 1 / terms.length : 1;
  // The gradient by the similarity of two texts, which is in the softmax of both.
  const gradientOf = (push, other) => matrix(pairs, pairs, (i, j) =>
    ((push[i][j] + (other ? other[j][i] : 0)) / count) * weight / settings.temperature);
  const gradient = gradientOf(rows.push, columns?.push);
  const sides = Object.fromEntries(Object.entries(SAME_SIDE).map(([side, name]) => {
    const direction = directions[name];
    return [side, direction ? { ...direction, gradient: gradientOf(direction.push, direction.push) } : null];
  }));
  const magnitude = (values) => total(values.flat().map(Math.abs));
  const [first, second = null] = terms.map((term) => total(term.losses) / count);
  const anchorLosses = rows.losses.map((loss, i) => (rows.positives[i].some(Boolean) ? loss : -Infinity));
  return {
    similarity, gradient, rows, columns, ...sides, positive, count, weight, first, second,
    total: weight * (first + (second ?? 0)),
    gradientSum: magnitude(gradient) + total(Object.values(sides).map((side) => magnitude(side?.gradient ?? []) / 2)),
    effective: terms[0].effective,
    hardest: positive.some(Boolean) ? firstLargest(anchorLosses) : -1,
  };
}
